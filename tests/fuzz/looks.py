"""Laws for the other commands and options, and for other orders of the same files."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from click.testing import CliRunner, Result

from mio2trace.cli import cli
from tests.fuzz import law
from tests.fuzz.cases import Case

Chance = random.Random
csv.field_size_limit(1 << 30)  # a name may be as long as a file
_FORMS = ("csv", "json", "jsonl", "markdown", "table")
_DRIVER_LINE = re.compile(
    r"(?:\./bin/MIOpenDriver|hipblaslt-bench|rocblas-bench)(?: [A-Za-z0-9_.,:x+-]+)* # [a-z0-9 ,.]+"
)
_STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control and bidi characters: what would steer a terminal."""


# ---- commands


def command(chance: Chance) -> tuple[str, ...]:
    """A command with some of its options."""
    name = chance.choice(("ops", "ops", "driver", "layers", "kernels", "tfprof", "inspect"))
    return (name, *_OPTIONS[name](chance))


def _maybe(chance: Chance, *words: str) -> tuple[str, ...]:
    return words if chance.random() < 0.3 else ()


def _ops(chance: Chance) -> tuple[str, ...]:
    pick = chance.randrange(6)
    if pick == 0:
        return ("--seed-csv",)
    if pick == 1:
        return ("--coverage", "--format", chance.choice(_FORMS))
    grouped = ("--group-by", chance.choice(("problem", "primitive,direction", "solver", "M,N,K"))) if pick < 4 else ()
    phase = _maybe(chance, "--phase", chance.choice(("run", "find")))
    return (*grouped, *phase, "--format", chance.choice(_FORMS))


def _layers(chance: Chance) -> tuple[str, ...]:
    return (*chance.choice(((), ("--each",), ("--times",))), *_unit(chance), "--format", chance.choice(_FORMS))


def _kernels(chance: Chance) -> tuple[str, ...]:
    by = chance.choice(("name", "repetition", "layer", "bucket", "", ""))
    what = ("--by", by) if by else _maybe(chance, "--gemm")
    per = _maybe(chance, "--per", chance.choice("1259"), "--skip", "1") if by == "repetition" else ()
    return (*what, *per, *_unit(chance), "--format", chance.choice(_FORMS))


def _unit(chance: Chance) -> tuple[str, ...]:
    return _maybe(chance, "--unit", chance.choice(("ns", "us", "ms", "s")))


def _tfprof(chance: Chance) -> tuple[str, ...]:
    show = ("--show", chance.choice((".*", ".*Conv2D", "a")))
    if chance.random() < 0.5:
        order = _maybe(chance, "--order-by", chance.choice(("name", "micros", "bytes")))
        more = (*_maybe(chance, "--max-depth", "2"), *_maybe(chance, "--console"), *_maybe(chance, "--displayed-only"))
        return ("--text", *show, *order, *more, *_maybe(chance, "--steps", chance.choice(("avg", "0", "-1"))))
    return (*show, *_maybe(chance, "--notebook-units"), "--format", chance.choice(_FORMS))


_OPTIONS: dict[str, Callable[[Chance], tuple[str, ...]]] = {
    "ops": _ops,
    "driver": lambda chance: ("--form", chance.choice(("today", "log"))),
    "layers": _layers,
    "kernels": _kernels,
    "tfprof": _tfprof,
    "inspect": lambda chance: (),
}
COMMANDS = tuple(sorted(_OPTIONS))


def asked(words: Sequence[str], size: int, codes: Sequence[int] = (0, 1, 2, 3)) -> Result:
    """A command in this process, which ends with one of ``codes``; with 1 in one line. Raises `law.ViolationError`."""
    with law.watched(words[0], size):
        result = CliRunner().invoke(cli, list(words))
    said, error = " ".join(words[:3]), result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise law.ViolationError(f"{said}: {type(error).__name__}: {error}") from error
    if result.exit_code not in codes or (result.exit_code == 1 and result.stderr.count("\n") != 1):
        raise law.ViolationError(f"{said}: exit {result.exit_code}: {result.stderr[:300]!r}")
    if steers(result.stderr):
        raise law.ViolationError(f"{said}: characters that steer a terminal: {_STEERS.findall(result.stderr)[:9]!r}")
    return result


def judge_command(files: Sequence[bytes], words: Sequence[str]) -> int:
    """A command beside `convert`: its exit code, 0, or 1 or 2 with its reason."""
    with law.on_disk(files) as paths:
        result = asked([*words, *map(str, paths)], sum(map(len, files)), (0, 1, 2))
    if result.exit_code == 0 and (wrong := _wrong_output(result.stdout, words)):
        raise law.ViolationError(f"{words[0]} output: {wrong}")
    return result.exit_code


def _wrong_output(out: str, words: Sequence[str]) -> str:
    """What is wrong with what a command printed, as far as it can be seen without knowing the input."""
    form = words[words.index("--format") + 1] if "--format" in words else "csv"
    if steers(out.replace("\t", "")):
        return f"characters that steer a terminal: {_STEERS.findall(out)[:9]!r}"
    if words[0] == "inspect" or form == "jsonl":
        return _no_json(out.splitlines())
    if form == "json":
        return _no_json([out])
    if words[0] == "driver":
        lines = (line for line in out.splitlines() if not _DRIVER_LINE.fullmatch(line))
        return next((f"no driver line: {line[:200]!r}" for line in lines), "")
    if form == "csv" and "--text" not in words:
        rows = list(csv.reader(io.StringIO(out)))
        if any(len(row) != len(rows[0]) for row in rows):
            return "CSV rows of several lengths"
    return ""


def _no_json(texts: Sequence[str]) -> str:
    for text in texts:
        try:
            json.loads(text, parse_constant=law._no_number)
        except ValueError as error:
            return f"no JSON: {error}: {text[:200]!r}"
    return ""


def steers(text: str) -> bool:
    """Whether a text would do something to a terminal."""
    return _STEERS.search(text) is not None


# ---- conversions with options


def options(chance: Chance) -> dict[str, Any]:
    """Options of `convert`, mostly few."""
    found: dict[str, Any] = {"host_calls": chance.choice(law.HOST_CALLS)}
    if chance.random() < 0.7:
        return found
    for name, values in CONVERT.items():
        if chance.random() < 0.15:
            found[name] = chance.choice(values)
    return found


CONVERT: dict[str, tuple[Any, ...]] = {
    "tracks": (("kernels",), ("operations",), ("kernels", "operations")),
    "fold": (("find",), ("set-up",), ("warm-up",), ("find", "set-up", "warm-up")),
    "begin": ("0.001s", "iteration 1", "layer conv1", "1e400s", "layer x"),
    "end": ("1s", "iteration 1", "layer ip1 backward"),
    "iterations": ("0", "1", "1-3", "2"),
    "top": (1, 5),
    "min_duration": ("10us", "1ns", "5ms"),
    "with_args": (False,),
    "without": (("timer marks",), ("buffers",), ("boundary stamps", "recurrence"), ("order",), ("durations",)),
    "keep": (("paths",), ("pointers",), ("paths", "hosts", "users", "pointers", "environment", "secrets")),
    "explain": (("kernel 3",), ("operation 1",), ("line 5",)),
    "strict": (True,),
    "repetition": (0, 1),
    "by_order_alone": (False,),
}


# ---- the same bytes


def judge_order(files: Sequence[bytes], host_calls: Any) -> str:
    """The order of the files changes nothing, in a trace or a table."""
    first, second = (_outcome(given, host_calls) for given in (files, files[::-1]))
    if isinstance(first, str) != isinstance(second, str):
        raise law.ViolationError(f"another order of the files: a trace or none: {first[:200]!r} {second[:200]!r}")
    if first != second:
        raise law.ViolationError("another order of the files: other bytes")
    for command in (("kernels",), ("layers",)):
        one, other = (_shown(given, command) for given in (files, files[::-1]))
        if one != other:
            raise law.ViolationError(f"another order of the files: other {command[0]}: {one[:200]!r} {other[:200]!r}")
    return "refused" if isinstance(first, str) else "trace"


def _shown(files: Sequence[bytes], words: Sequence[str]) -> str:
    """A command's table, or "refused"."""
    named = sorted(files)
    with law.on_disk(named) as paths:
        given = [str(paths[named.index(data)]) for data in files]
        result = asked([*words, "--format", "csv", *given], sum(map(len, files)))
    return result.stdout if result.exit_code == 0 else "refused"


def _outcome(files: Sequence[bytes], host_calls: Any) -> bytes | str:
    """The trace without the names of the files, or "refused"."""
    out = io.BytesIO()
    # Names tell the order: each file keeps its own, whatever its place.
    named = sorted(files)
    with law.on_disk(named) as paths:
        given = [paths[named.index(data)] for data in files]
        found = law.converted(given, out, host_calls=host_calls, by_order_alone=True)
    return "refused" if found is None else out.getvalue()


# ---- one case


def judge(case: Case, chance: Chance) -> str:
    """One look at a case, chosen by chance: "trace", "refused", "shown" or "not shown"."""
    pick = chance.random()
    if pick < 0.3:
        words = command(chance)
        return "not shown" if judge_command(case.files, words) else "shown"
    if pick < 0.34 and len(case.files) > 1:
        return judge_order(case.files, chance.choice(law.HOST_CALLS))
    if pick < 0.4 and b"MIOpen" in case.files[0]:
        law.judge_operations(case.files[0])
        return "shown"
    return law.judge(case.files, case.enqueues, both=chance.random() < 0.4, **options(chance))
