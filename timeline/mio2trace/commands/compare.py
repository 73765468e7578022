"""``mio2trace compare``: compare two or more sides, show what changed, and fail above a limit (for CI)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import click

import mio2trace
from mio2trace import commands as console
from mio2trace.commands import coloured, put, say, show, tell, write
from mio2trace.outgoing import count, json_text, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mio2trace.comparing.comparison import Comparison
    from mio2trace.comparing.sides import Source
    from mio2trace.notes import Notes

_GENERATOR = f"mio2trace {mio2trace.__version__}"
REGRESSION = 3
"""Exit code if a limit is exceeded."""


def _limit(text: str) -> tuple[str, float]:
    """Return ``total``, ``step`` or ``problem``, and the allowed growth: 0.05 for 5 %."""
    what, _, number = text.rpartition(":")
    try:
        part = float(number.removesuffix("%")) / 100
        if what not in ("", "total", "step", "problem") or not number.endswith("%") or not 0 <= part < 1e6:
            raise ValueError
    except ValueError:
        raise click.BadParameter(
            f"{text!r}: expected 5% (kernel time per iteration), step:5% (length of a step), or problem:10% (each part)"
        ) from None
    return what or "total", part


@click.command(cls=console.TableCommand, no_args_is_help=True)
@click.argument("sides", nargs=-1, required=True, metavar="A B [C ...]", shell_complete=console.complete_files)
@click.option(
    "--fail-above",
    "limits",
    type=_limit,
    multiple=True,
    metavar="LIMIT",
    help="Exit with 3 if the kernel time per iteration of the last side is longer than that of the first by more than"
    " this limit: 5%. step:5% is a limit for the length of a step, problem:10% for each part.",
)
@click.option("--save", metavar="FILE", help="Write the only side to FILE, as a base for later comparisons.")
@click.option(
    "--picture",
    metavar="OUT",
    help="Write both runs into one trace; their iterations begin together. .pftrace or .json, either with .gz. -o"
    " accepts the same suffixes except .json.",
)
@console.flag("--all", "everything", help="Print every row, not only the rows that changed.")
@console.damaged_option
@functools.partial(console.printing_options, default="the answer as text")
@console.reading_options
def compare(
    sides: tuple[str, ...],
    limits: tuple[tuple[str, float], ...],
    save: str | None,
    picture: str | None,
    everything: bool,
    damaged: bool,
    printing: console.Printing,
    inputs: console.Inputs,
) -> None:
    """Show what became slower between runs, whether that is real, and why.

    Give the old side first: A. A change is B compared with A, so "slower" means that B is slower.

    A side is a file, several files of one run with commas between them, or a folder of one or several runs. It may also
    be a CK record with its repetitions, a file of --save, or a trace that `convert` wrote. The suffix of -o chooses the
    format: .html is a page. With 1 or 2 runs per side a change is at most "maybe". 3 runs can decide changes above
    10 %, 5 runs changes above 5 %.

    Problems are matched by their computation, layers by their place in the net. Kernels are shown as the cause of a
    change in a problem; without a problem they are compared by name. Times are medians over the steady iterations of a
    run, then over the runs (`report` has means). Searches, the first iteration and program builds are compared apart.

    \b
    Examples:
      mio2trace compare rocm-6.4/ rocm-7.0/
      mio2trace compare old.log,old_results.db new.log,new_results.db
      mio2trace compare good/ --save base.json
      mio2trace compare rocm-6.4/ rocm-7.0/ -o page.html --picture both.pftrace
      mio2trace compare base.json nightly/ --fail-above 5%
      mio2trace compare rocm-6.3/ rocm-6.4/ rocm-7.0/
    """
    from mio2trace.comparing import Comparison
    from mio2trace.comparing.sides import base_text, source
    from mio2trace.files import replacing
    from mio2trace.notes import Notes

    if save is None and len(sides) < 2:
        raise click.UsageError("expected two sides or more; --save needs exactly one side")
    if save is not None and len(sides) > 1:
        raise click.UsageError(f"--save needs one side, not {len(sides)}")
    if save is not None and limits:
        raise click.UsageError("--save compares nothing, so --fail-above cannot fail")
    if len(dict(limits)) < len(limits):
        raise click.UsageError("--fail-above: two limits of one kind; expected one of 5%, step:5% and problem:10% each")
    is_page = (printing.path or "").lower().endswith((".html", ".htm"))
    picture = _path_of_picture(printing.path, picture)
    for output in (printing.path, picture, save):
        console.refuse_to_overwrite([file for files in sides for file in files.split(",")], output)
    if picture is not None and len(sides) != 2:
        raise click.UsageError(f"--picture needs two sides, not {len(sides)}")
    notes = Notes()
    repetition = "every" if inputs.repetition is None else inputs.repetition
    wanted = inputs.options(repetition=repetition, near=False)
    read = [source(files.split(","), wanted, notes, keep=picture is not None, damaged=damaged) for files in sides]
    if save is not None:
        with replacing(save) as file:
            file.write(base_text(read[0].side, _GENERATOR))
        say(notes, [f"{read[0].side.name}: {count(len(read[0].side.runs), 'run')}"], inputs.quiet)
        if not inputs.quiet:
            console.tell(f"wrote {save}")  # a path that the user gave is no private text
        return
    comparisons = [Comparison(read[0].side, other.side) for other in read[1:]]
    if picture is not None:
        _draw(comparisons[0], read, picture)
    if is_page and printing.path is not None:
        from mio2trace.comparing.text import page

        put([page(comparisons, _GENERATOR)], printing.path)
    if is_page or (picture is not None and printing.path == picture):
        _write_first(_verdicts(comparisons))
        say(notes, [], inputs.quiet)
    else:
        _print(comparisons, printing, notes, everything=everything, quiet=inputs.quiet)
    for path in dict.fromkeys((printing.path, picture)):
        if path not in (None, "-") and not inputs.quiet:
            console.tell(f"wrote {path}")
    _gate(comparisons[-1], limits)


def _path_of_picture(path: str | None, picture: str | None) -> str | None:
    """Return the path of the comparison trace: that of ``--picture``, or of ``-o`` if it has the suffix of one.

    Raises `click.UsageError` for an unknown suffix.
    """
    from mio2trace.writers import by_suffix, suffixes

    if picture is None and (path or "").lower().endswith(tuple(end for end in suffixes() if end != ".json")):
        picture = path
    if picture is not None and (picture == "-" or by_suffix(picture) is None):
        raise click.UsageError(f"--picture {picture}: expected a name that ends in {', '.join(suffixes())}")
    return picture


def _draw(comparison: Comparison, sides: Sequence[Source], path: str) -> None:
    from mio2trace.comparing.picture import picture
    from mio2trace.files import replacing
    from mio2trace.machine import without_garbage_collection
    from mio2trace.writers import by_suffix, write

    form = by_suffix(path)
    assert form is not None
    with without_garbage_collection():
        trace = picture(comparison, sides[0], sides[1], {"generator": _GENERATOR})
        with replacing(path) as file:
            write(form[0], trace, file, compress=form[1])


def _verdicts(comparisons: Sequence[Comparison]) -> list[str]:
    from mio2trace.comparing.text import headline

    several = len(comparisons) > 1
    return [f"{one.b.name}: {headline(one)}" if several else headline(one) for one in comparisons]


def _write_first(verdicts: Sequence[str]) -> None:
    import textwrap

    from mio2trace.answer.text import WIDTH

    lines = [line for verdict in verdicts for line in textwrap.wrap(visible(verdict), WIDTH, subsequent_indent="  ")]
    write([coloured("".join(f"{line}\n" for line in lines))])


def _print(
    comparisons: Sequence[Comparison], printing: console.Printing, notes: Notes, *, everything: bool, quiet: bool
) -> None:
    """Print the answer, or the rows in the requested form; each form begins with the verdict."""
    import orjson

    from mio2trace.comparing import text

    form, one = printing.of_answer(), comparisons[0]
    several = len(comparisons) > 1
    if form == "table" and not several and not printing.selects:
        said = "".join(f"{line}\n" for line in text.block(one, everything=everything))
        put([coloured(said) if printing.path in (None, "-") else said], printing.path)
    elif form == "markdown" and not printing.selects:
        put([text.comment(comparisons, everything=everything)], printing.path)
    elif form == "json" and not printing.selects:
        made = [text.document(one, everything=everything) for one in comparisons]
        data = orjson.dumps(made if several else made[0], option=orjson.OPT_INDENT_2)
        put([json_text(data.decode()), "\n"], printing.path)
    else:
        rows = text.pivot(comparisons, everything=everything) if several else text.table(one, everything=everything)
        verdicts = _verdicts(comparisons)
        if form in ("table", "markdown") and printing.path in (None, "-"):
            _write_first(verdicts)
            verdicts = []
        show(lambda: rows, printing._replace(form=form), notes, verdicts, quiet)
        return
    say(notes, [], quiet)


def _gate(comparison: Comparison, limits: Sequence[tuple[str, float]]) -> None:
    """Print which limits are exceeded; if there is one, exit with `REGRESSION`."""
    from mio2trace.comparing.statistics import LEAST_SHARE
    from mio2trace.findings.rule import percent

    wanted = dict(limits)
    try:
        failures = comparison.failures(wanted.get("total"), wanted.get("problem"), wanted.get("step"))
    except ValueError as error:
        raise click.UsageError(f"--fail-above {error}") from None
    uncompared = comparison.uncompared
    if "problem" in wanted and uncompared is not None and uncompared[0] > LEAST_SHARE:
        tell(
            f"problem: the base keeps no parts of less than {percent(uncompared[0])} of the iteration (together"
            f" {percent(uncompared[1])}): --fail-above problem does not see them"
        )
    for failure in failures:
        said = f"{failure.name}: {failure.ratio:.3f} of the first side, more than {1 + failure.limit:.3f}"
        tell(f"slower: {said}" + (f" (an alarm: {failure.undecided})" if failure.undecided else ""))
    if failures:
        raise click.exceptions.Exit(REGRESSION)
