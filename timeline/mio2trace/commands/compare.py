"""``mio2trace compare``: compare two or more sides, show what changed, and fail above a limit (for CI)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

import mio2trace
from mio2trace.commands import options
from mio2trace.commands.printing import coloured, put, say, show, tell, write
from mio2trace.outgoing import count, json_text, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mio2trace.comparing.comparison import Comparison, Side
    from mio2trace.comparing.sides import Source
    from mio2trace.notes import Notes

_PAGES = (".html", ".htm")
REGRESSION = 3
"""Exit code if a limit is exceeded."""


class Limits(NamedTuple):
    """The allowed growth of the iteration and of each part, 0.05 for 5 %."""

    total: float | None = None
    problem: float | None = None


class _Limit(click.ParamType):  # type: ignore[type-arg]
    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        what, _, number = str(value).rpartition(":")
        try:
            part = float(number.removesuffix("%")) / 100
            if what not in ("", "total", "problem") or not number.endswith("%") or not 0 <= part < 1e6:
                raise ValueError
        except ValueError:
            self.fail(f"{value!r}: expected 5% (of an iteration), or problem:10% (of each of its parts)", param, ctx)
        return what or "total", part


@click.command(cls=options.TableCommand, no_args_is_help=True)
@click.argument("sides", nargs=-1, required=True, metavar="A B [C ...]", shell_complete=options.complete_files)
@click.option(
    "--fail-above",
    "limits",
    type=_Limit(),
    multiple=True,
    metavar="LIMIT",
    help="Exit with 3 if the iteration of the last side is slower than that of the first by more than this limit: 5%."
    " problem:10% is a limit for each part.",
)
@click.option("--save", metavar="FILE", help="Write the only side to FILE, as a base for later comparisons.")
@click.option(
    "--picture",
    metavar="OUT",
    help="Write both runs into one trace; their iterations begin together. .pftrace or .json, either with .gz. -o"
    " accepts the same suffixes except .json.",
)
@click.option("--all", "everything", is_flag=True, help="Print every row, not only the rows that changed.")
@options.damaged_option
@options.printing_options
@options.reading_options
def compare(  # noqa: PLR0913 - click gives each option by keyword
    sides: tuple[str, ...],
    limits: tuple[tuple[str, float], ...],
    save: str | None,
    picture: str | None,
    everything: bool,
    damaged: bool,
    printing: options.Printing,
    reading: options.Reading,
    quiet: bool,
) -> None:
    """Show what became slower between runs, whether that is real, and why.

    Give the old side first: A. A change is B compared with A, so "slower" means that B is slower.

    A side is a file, several files of one run with commas between them, or a folder of one or several runs. It may also
    be a CK record with its repetitions, a file of --save, or a trace that `convert` wrote. The suffix of -o chooses the
    form: .html is a page. With 1 or 2 runs per side a change is at most "maybe". 3 runs can decide changes above 10 %,
    5 runs changes above 5 %.

    Problems are matched by their computation, layers by their place in the net. Kernels are shown as the cause of a
    change in a problem; without a problem they are compared by name. Times are means per steady iteration. Searches,
    the first iteration and program builds are compared apart.

    \b
    Examples:
      mio2trace compare rocm-6.4/ rocm-7.0/
      mio2trace compare old.log,old_results.db new.log,new_results.db --format markdown
      mio2trace compare good/ --save base.json
      mio2trace compare rocm-6.4/ rocm-7.0/ -o compare.html --picture compare.pftrace
      mio2trace compare base.json nightly/ --fail-above 5% --fail-above problem:10%
      mio2trace compare rocm-6.3/ rocm-6.4/ rocm-7.0/
    """
    from mio2trace.comparing import Comparison
    from mio2trace.comparing.sides import source
    from mio2trace.notes import Notes

    if save is None and len(sides) < 2:
        raise click.UsageError("expected two sides or more; --save needs exactly one side")
    if save is not None and len(sides) > 1:
        raise click.UsageError(f"--save needs one side, not {len(sides)}")
    is_page, picture = _outputs(printing.path, picture)
    for output in (printing.path, picture, save):
        options.refuse_to_overwrite([file for files in sides for file in files.split(",")], output)
    if picture is not None and len(sides) != 2:
        raise click.UsageError(f"--picture needs two sides, not {len(sides)}")
    notes = Notes()
    repetition = "every" if reading.repetition is None else reading.repetition
    wanted = reading.analysis(repetition=repetition, near=False)
    read = [source(files.split(","), wanted, notes, keep=picture is not None, damaged=damaged) for files in sides]
    if save is not None:
        _save(read[0].side, save)
        say(notes, [f"{read[0].side.name}: {count(len(read[0].side.runs), 'run')} kept in {save}"], quiet)
        return
    comparisons = [Comparison(read[0].side, other.side) for other in read[1:]]
    if picture is not None:
        _draw(comparisons[0], read, picture)
    if is_page and printing.path is not None:
        from mio2trace.comparing.page import page

        put([page(comparisons, f"mio2trace {mio2trace.__version__}")], printing.path)
    if is_page or (picture is not None and printing.path == picture):
        _write_first(_verdicts(comparisons))
        say(notes, [], quiet)
    else:
        _print(comparisons, printing, notes, everything=everything, quiet=quiet)
    _gate(comparisons[-1], limits)


class _Outputs(NamedTuple):
    """Return whether the path of ``-o`` is a page's, and the path of the comparison trace."""

    is_page: bool
    picture: str | None


def _outputs(path: str | None, picture: str | None) -> _Outputs:
    """Choose the forms by the suffixes. Raises `click.UsageError` for a comparison trace with an unknown suffix."""
    from mio2trace.writers import by_suffix, suffixes

    name = "" if path is None else path.lower()
    if picture is None and name.endswith(tuple(end for end in suffixes() if end != ".json")):
        picture = path
    if picture is not None and (picture == "-" or by_suffix(picture) is None):
        raise click.UsageError(f"--picture {picture}: expected a name that ends in {', '.join(suffixes())}")
    return _Outputs(name.endswith(_PAGES), picture)


def _save(side: Side, path: str) -> None:
    from mio2trace.comparing.sides import base_text
    from mio2trace.files import replacing

    with replacing(path) as file:
        file.write(base_text(side, f"mio2trace {mio2trace.__version__}"))


def _draw(comparison: Comparison, sides: Sequence[Source], path: str) -> None:
    from mio2trace.comparing.picture import picture
    from mio2trace.files import replacing
    from mio2trace.memory import without_garbage_collection
    from mio2trace.writers import by_suffix, write

    form = by_suffix(path)
    assert form is not None
    with without_garbage_collection():
        trace = picture(comparison, sides[0], sides[1], {"generator": f"mio2trace {mio2trace.__version__}"})
        with replacing(path) as file:
            write(form[0], trace, file, compress=form[1])


def _verdicts(comparisons: Sequence[Comparison]) -> list[str]:
    """Yield a line for each side that is compared with the first one."""
    from mio2trace.comparing.changes import headline

    several = len(comparisons) > 1
    return [f"{one.b.name}: {headline(one)}" if several else headline(one) for one in comparisons]


def _write_first(verdicts: Sequence[str]) -> None:
    import textwrap

    from mio2trace.answer.text import WIDTH

    lines = [line for verdict in verdicts for line in textwrap.wrap(visible(verdict), WIDTH, subsequent_indent="  ")]
    write([coloured("".join(f"{line}\n" for line in lines))])


def _print(
    comparisons: Sequence[Comparison], printing: options.Printing, notes: Notes, *, everything: bool, quiet: bool
) -> None:
    """Print the answer, or the rows in the requested form; each form begins with the verdict."""
    import orjson

    from mio2trace.comparing import text
    from mio2trace.comparing.text import document, pivot, table

    form = printing.printed_as() if printing.form is not None or printing.path not in (None, "-") else "table"
    chosen = any((printing.columns, printing.sort, printing.top, printing.where))
    if form == "table" and len(comparisons) == 1 and not chosen:
        lines = text.block(comparisons[0], everything=everything)
        said = "".join(f"{line}\n" for line in lines)
        put([coloured(said) if printing.path in (None, "-") else said], printing.path)
    elif form == "markdown" and not chosen:
        put([text.comment(comparisons, everything=everything)], printing.path)
    elif form == "json" and not chosen:
        made = [document(one, everything=everything) for one in comparisons]
        put(
            [json_text(orjson.dumps(made[0] if len(made) == 1 else made, option=orjson.OPT_INDENT_2).decode()), "\n"],
            printing.path,
        )
    else:
        rows = (
            table(comparisons[0], everything=everything)
            if len(comparisons) == 1
            else pivot(comparisons, everything=everything)
        )
        verdicts = _verdicts(comparisons)
        if form in ("table", "markdown") and printing.path in (None, "-"):
            _write_first(verdicts)
            verdicts = []
        show(lambda: rows, printing._replace(form=form), notes, verdicts, quiet)
        return
    say(notes, [], quiet)


def _gate(comparison: Comparison, limits: Sequence[tuple[str, float]]) -> None:
    """Print which limits are exceeded; if there is one, exit with `REGRESSION`."""
    wanted = Limits(**dict(limits))
    try:
        failures = comparison.failures(wanted.total, wanted.problem)
    except ValueError as error:
        raise click.UsageError(f"--fail-above problem: {error}") from None
    for failure in failures:
        said = f"{failure.name}: {failure.ratio:.3f} of the first side, more than {1 + failure.limit:.3f}"
        tell(f"slower: {said}" + ("" if failure.decided else " (an alarm: fewer than 3 runs per side cannot decide)"))
    if failures:
        raise click.exceptions.Exit(REGRESSION)
