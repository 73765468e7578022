"""Private text stays out, names stay in: canaries of each kind in every field, searched in every output.

    python benchmarks/canaries.py [--part 1/35] [--kind TEXT]

Files of every format (tests/planted) with a canary (tests/canaries.py) in every text field, through `convert` and the
commands that print tables. Prints, for each kind and output, the number of formats that were searched and the number of
finds (``!n``). Then it prints, for each field that holds names, how many names went in and how many came out changed.
Exit 1 when anything leaked or was eaten. ``--part 1/35``: as many parts as formats;
each part has all kinds and all formats.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import orjson
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "timeline")]

from mio2trace.analysis import Run, snapshot_of  # noqa: E402
from mio2trace.answer import report_of  # noqa: E402
from mio2trace.answer.content import records  # noqa: E402
from mio2trace.answer.html import page  # noqa: E402
from mio2trace.answer.markdown import comment  # noqa: E402
from mio2trace.answer.text import lines  # noqa: E402
from mio2trace.cli import cli  # noqa: E402
from mio2trace.comparing import Comparison, Side  # noqa: E402
from mio2trace.comparing import text as comparison_text  # noqa: E402
from mio2trace.comparing.picture import picture  # noqa: E402
from mio2trace.comparing.record import collect  # noqa: E402
from mio2trace.comparing.sides import Source, base_text  # noqa: E402
from mio2trace.comparing.text import page as comparison_page  # noqa: E402
from mio2trace.conversion import convert  # noqa: E402
from mio2trace.dataset import tables_of  # noqa: E402
from mio2trace.notes import Notes  # noqa: E402
from mio2trace.readers.base import kernel_name  # noqa: E402
from mio2trace.snapshot.objects import to_tables  # noqa: E402
from mio2trace.writers import WRITERS  # noqa: E402
from tests.canaries import CANARIES, LAYERS, NAMES, leaks  # noqa: E402
from tests.planted import FORMATS, miopen, opencl, tensorflow  # noqa: E402
from tests.small_runs import as_json, as_text, benchmark  # noqa: E402
from tests.tf_files import GPU  # noqa: E402

_LOGS = ("log", "CK", "dv/dt", "MIOpen", "Caffe")
_TABLES = {
    "ops json": (("ops", "--format", "json"), ("log", "MIOpen")),
    "ops csv": (("ops", "--format", "csv", "--group-by", "problem"), ("log", "MIOpen")),
    "ops text": (("ops", "--format", "table"), ("log", "MIOpen")),
    "driver": (("driver",), ("log", "MIOpen")),
    "driver log": (("driver", "--form", "log"), ("log", "MIOpen")),
    "kernels json": (("kernels", "--format", "json"), (*_LOGS, "ROCm")),
    "kernels text": (("kernels", "--format", "table", "--by", "name"), (*_LOGS, "ROCm")),
    "layers json": (("layers", "--format", "json"), ("log", "CK", "Caffe", "ROCm v3 object")),
    "tfprof json": (("tfprof", "--format", "json", "--show", ".*"), ("Proto", "Meta", "StepStats text", "JSON")),
    "tfprof csv": (("tfprof", "--format", "csv", "--show", ".*"), ("Proto", "Meta", "StepStats text", "JSON")),
    "tfprof text": (("tfprof", "--text", "--show", ".*"), ("Proto", "Meta", "StepStats text", "JSON")),
    "coverage": (("ops", "--coverage", "--format", "json"), ("log", "MIOpen")),
}
"""Name -> (the command, formats that it is for: one of these words is in their name)."""
_DRAWN = 60
"""So much of a long name is drawn at least."""
OUTPUTS = ("trace json", "trace native", "summary", "report", "answer", "comparison", *_TABLES, "stderr")


PARTS = len(FORMATS)


class Look(NamedTuple):
    """The result for one kind in one format: its outputs, the leaks in them, the categories of its slices."""

    looked: set[str]
    leaked: dict[str, list[str]]
    drawn: set[str]


def cases() -> list[tuple[str, str]]:
    """(format, kind), so that each of `PARTS` parts has all formats and all kinds."""
    pairs = [(name, kind) for name in FORMATS for kind in CANARIES]
    return sorted(pairs, key=lambda pair: (_part(*pair), pair))


def _part(name: str, kind: str) -> int:
    return (list(FORMATS).index(name) + list(CANARIES).index(kind)) % PARTS


def look(name: str, kind: str) -> Look:
    """Convert and tabulate a format with a canary in all its fields; every output that was made."""
    outputs: dict[str, list[str]] = {}
    drawn: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, data in enumerate(FORMATS[name](CANARIES[kind])):
            paths.append(Path(folder) / f"in{number}")
            paths[-1].write_bytes(data)
        for output, text in _converted(name, paths):
            outputs.setdefault(output, []).extend(leaks(text))
            if output == "trace json" and isinstance(text, bytes):
                drawn |= {event["cat"] for event in orjson.loads(text)["traceEvents"] if "cat" in event}
        for output, (options, words) in _TABLES.items():
            if any(word in name for word in words) and (options[0] != "tfprof" or len(paths) == 1):
                result = CliRunner().invoke(cli, [*options, *map(str, paths)], catch_exceptions=False)
                if result.exit_code == 0:
                    outputs.setdefault(output, []).extend(leaks(result.stdout))
                if name != opencl.DAMAGED:
                    outputs.setdefault("stderr", []).extend(leaks(result.stderr))
    return Look(set(outputs), {output: found for output, found in outputs.items() if found}, drawn)


def _converted(name: str, paths: list[Path]) -> Iterator[tuple[str, str | bytes]]:
    out, summary = io.BytesIO(), paths[0].with_name("summary")
    result = convert(*paths, output=out, summary_file=summary, by_order_alone=True, host_calls="all")
    for writer in WRITERS:
        written = io.BytesIO()
        writer.write(result.trace, written)
        yield ("trace native" if "pftrace" in "".join(writer.SUFFIXES) else "trace json"), written.getvalue()
    yield "trace json", out.getvalue()
    yield "summary", summary.read_bytes()
    if name != opencl.DAMAGED:  # there it quotes what it could not read, for the person only
        yield "report", "\n".join(result.report)
        made = report_of(result.analysis, result.runs)
        yield "answer", "".join((*lines(made), comment(made), page(made), records(made)))
        yield from (("comparison", text) for run in result.runs for text in _compared(run))
    for run in result.runs:
        tables = tables_of(run, notes=result.notes, cleaner=result.analysis.cleaner)
        yield (
            "tables",
            "\n".join(word for columns in tables.values() for data in columns.values() for word in data.words),
        )
    kept = snapshot_of(result.runs, result.notes, result.analysis.cleaner, "mio2trace")
    yield "snapshot", b"".join(table.data for table in to_tables(kept))


def _compared(run: Run) -> Iterator[str | bytes]:
    """A run beside one that lacks all its parts, so that everything of them is told: base, table, page, picture."""
    record = collect(run, Notes())
    if record is None:
        return
    whole, bare = Side(name="a", runs=(record,)), Side(name="b", runs=(msgspec.structs.replace(record, parts=()),))
    comparison = Comparison(whole, bare)
    yield base_text(whole, "mio2trace")
    yield "\n".join(
        (
            *comparison_text.block(comparison),
            comparison_text.comment([comparison]),
            *(str(row) for row in comparison.table.rows),
        )
    )
    yield comparison_page([comparison], "mio2trace")
    trace = picture(comparison, Source(whole, (run,)), Source(bare, (run,)), {"generator": "mio2trace"})
    for writer in WRITERS:
        written = io.BytesIO()
        writer.write(trace, written)
        yield written.getvalue()


# ---- names


def eaten() -> list[tuple[str, int, list[str]]]:
    """(field, how many names went in, those that did not come out of the trace as they were)."""
    return [(field, len(names), _lost(files, names)) for field, files, names in _named()]


def _named() -> Iterator[tuple[str, list[bytes], list[str]]]:
    everywhere = list(NAMES)
    calls, log = benchmark()
    named = [dict(call) for call in calls]
    kernels = [call for call in named if call["call"] == "clEnqueueNDRangeKernel"]
    for name in everywhere:
        call = dict(kernels[-1])
        call["name"] = name
        named.append(call)
    shown = [kernel_name(name) for name in everywhere]
    yield "dv/dt JSON: kernel", [as_json(named)], shown
    yield "dv/dt text: kernel", [as_text(named)], [name for name in shown if "," not in name]
    plain = [name for name in (*everywhere, *LAYERS) if not set(name) & set(" \t<>")]
    stamp = log.splitlines()[0].split("]")[0]
    printed = [f"{stamp}] {name:>10}\t{way}: 0.05 ms." for way in ("forward", "backward") for name in plain]
    yield "Caffe log: layer", [_with_layers(log, printed).encode()], plain
    for names in (everywhere[at::3] for at in range(3)):
        yield "MIOpen log: message", [_with_warnings(names).encode(), miopen.PROFILE], names
    scopes = [name for name in (*everywhere, *LAYERS) if not set(name) & set(" :<>\"'")]
    events = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"{GPU} Compute"}},
        *(
            {"ph": "X", "cat": "Op", "name": "Conv2D", "pid": 1, "tid": 0, "ts": tensorflow.START_US + 9 * at, "dur": 5,
             "args": {"name": name, "op": "Conv2D"}}
            for at, name in enumerate(scopes)
        ),
    ]  # fmt: skip
    yield "TensorFlow: node", [orjson.dumps({"traceEvents": events})], scopes


def _with_warnings(names: list[str]) -> str:
    """A real run's log with a warning after each call: of what several calls say, one line is drawn."""
    out = []
    turn = itertools.cycle(names)
    for line in miopen.LOG.splitlines():
        out.append(line)
        if line == f"{miopen.PREFIX}}}":
            out.append(f"{miopen.PREFIX}Warning [x] {next(turn)}")
    return "\n".join(out) + "\n"


def _with_layers(log: str, printed: list[str]) -> str:
    """The log with these lines where its own layers stand."""
    lines = log.splitlines()
    own = [at for at, line in enumerate(lines) if "\tforward:" in line or "\tbackward:" in line]
    return "\n".join([*lines[: own[0]], *printed, *lines[own[-1] + 1 :]]) + "\n"


def _lost(files: list[bytes], names: list[str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, data in enumerate(files):
            paths.append(Path(folder) / f"in{number}")
            paths[-1].write_bytes(data)
        out = io.BytesIO()
        convert(*paths, output=out, host_calls="all")
    texts: set[str] = set()
    _collect(orjson.loads(out.getvalue()), texts)
    whole = "\n".join(texts)
    return [name for name in names if name[:_DRAWN] not in whole]


def _collect(value: object, texts: set[str]) -> None:
    if isinstance(value, str):
        texts.add(value)
    elif isinstance(value, dict):
        for part in value.values():
            _collect(part, texts)
    elif isinstance(value, list):
        for part in value:
            _collect(part, texts)


# ---- the table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", default="1/1", metavar="N/OF")
    parser.add_argument("--kind", default="", metavar="TEXT", help="only kinds that hold TEXT")
    options = parser.parse_args()
    part, of = map(int, options.part.split("/"))
    chosen = [pair for pair in cases() if options.kind in pair[1]]
    chosen = chosen[(part - 1) * len(chosen) // of : part * len(chosen) // of]
    os.environ["USER"] = os.environ["HOSTNAME"] = "canary"
    looked: Counter[tuple[str, str]] = Counter()
    leaked: Counter[tuple[str, str]] = Counter()
    for name, kind in chosen:
        with contextlib.redirect_stderr(io.StringIO()):
            found = look(name, kind)
        looked.update((kind, output) for output in found.looked)
        for output, texts in found.leaked.items():
            leaked[kind, output] += 1
            print(f"LEAK {name} · {kind} · {output}: {texts[0]!r}")
    print(f"| kind | {' | '.join(OUTPUTS)} |\n| --- |{' --- |' * len(OUTPUTS)}")
    for kind in dict.fromkeys(kind for _, kind in sorted(chosen, key=lambda pair: list(CANARIES).index(pair[1]))):
        cells = (
            f"{looked[kind, output] or ''}{f' !{leaked[kind, output]}' * bool(leaked[kind, output])}"
            for output in OUTPUTS
        )
        print(f"| {kind} | {' | '.join(cells)} |")
    print("\n| field | names | eaten |\n| --- | --- | --- |")
    lost = 0
    for field, count, names in eaten():
        lost += len(names)
        print(f"| {field} | {count} | {', '.join(names) or 0} |")
    print(f"\n{sum(looked.values())} looks, {sum(leaked.values())} leaks, {lost} eaten names")
    return bool(leaked or lost)


if __name__ == "__main__":
    sys.exit(main())
