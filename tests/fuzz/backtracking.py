"""Strings that make a regular expression's parts backtrack, and every expression of the package with how it is used.

A repeat backtracks where what follows it fails: so each part of an expression, as a string that it matches, is repeated
after what stands before it, and ended by what nothing expects.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import random
import re
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NamedTuple

import mio2trace
from mio2trace.patterns import Late

METHODS = ("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn")
_ANCHORED = frozenset({"match", "fullmatch"})
_ENDS = ("", "\0", "\n\0", " x")
_MOST_UNITS = 100
_OFTEN = 200
_ENOUGH_SECONDS, _ENOUGH_CALLS = 0.03, 64
_EVERY_CHARACTER = " a0_-.,:;=/\\<>(){}[]'\"|~$#@!\n\tAZ\0é"


class Use(NamedTuple):
    """An expression, where it stands, and the methods that are called on it."""

    place: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


def modules() -> list[ModuleType]:
    """Every module of the package, imported."""
    names = [module.name for module in pkgutil.walk_packages(mio2trace.__path__, "mio2trace.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def uses() -> list[Use]:
    """Every compiled expression that a module's names lead to."""
    called = {module.__name__: _called(tree_of(module)) for module in modules()}
    every: dict[str, set[str]] = {}
    for names in called.values():
        for name, methods in names.items():
            every.setdefault(name, set()).update(methods)
    seen: dict[int, Use] = {}
    for module in modules():
        for name, value in vars(module).items():
            for pattern, place in _patterns(value, f"{module.__name__}.{name}", set()):
                methods = _methods_of(place, name, called[module.__name__], every)
                before = seen.get(id(pattern))
                seen[id(pattern)] = Use(
                    before.place if before else place, pattern, (before.methods if before else frozenset()) | methods
                )
    return sorted(seen.values(), key=lambda use: use.place)


def _methods_of(place: str, name: str, here: dict[str, set[str]], every: dict[str, set[str]]) -> set[str]:
    """How an expression is used, by the name that leads to it; by what is looked for when nothing tells."""
    last = place.rpartition(".")[2]
    if last in METHODS:
        return {last}
    calls = here if name.startswith("_") else every
    parts = [part for part in place.split(".")[2:] if not part.isdigit()]
    return (
        next((calls[part] for part in (name, *reversed(parts)) if part in calls), None) or every.get(last) or {"search"}
    )


def _called(tree: ast.Module) -> dict[str, set[str]]:
    """The methods of `re.Pattern` that a module calls, by the name called on; a loop's names count for its rows."""
    calls: dict[str, set[str]] = {}
    loops: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            calls.setdefault(_last_name(node.value), set()).add(node.attr)
        elif isinstance(node, (ast.For, ast.comprehension)):
            loops.append((node.target, node.iter))
    for target, runs_over in loops:
        for part in ast.walk(target):
            if isinstance(part, ast.Name) and part.id in calls:
                calls.setdefault(_last_name(runs_over), set()).update(calls[part.id])
    return calls


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def tree_of(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))


def _patterns(value: Any, place: str, on_the_way: set[int]) -> Iterator[tuple[re.Pattern[Any], str]]:
    """The expressions that ``value`` leads to: in containers, records, classes, functions' defaults, bound methods."""
    if isinstance(value, Late):
        value = value.compiled
    if isinstance(value, re.Pattern):
        yield value, place
        return
    if id(value) in on_the_way or isinstance(value, (str, bytes, int, float, type(None), ModuleType)):
        return
    on_the_way.add(id(value))
    for name, part in _parts(value):
        yield from _patterns(part, f"{place}.{name}", on_the_way)


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(str(key), part) for key, part in itertools.chain(value.items(), ((key, key) for key in value))]
    if isinstance(value, (tuple, list, set, frozenset)):
        return [(str(at), part) for at, part in enumerate(value)]
    owner = getattr(value, "__self__", None)
    if isinstance(owner, re.Pattern):
        return [(value.__name__, owner)]
    if not str(getattr(type(value), "__module__", "")).startswith("mio2trace") and not callable(value):
        return []
    if str(getattr(value, "__module__", "mio2trace")).startswith("mio2trace"):
        names = {*getattr(value, "__dict__", ()), *getattr(value, "__struct_fields__", ())}
        parts = [(name, getattr(value, name, None)) for name in sorted(names) if not name.startswith("__")]
        closed = [cell.cell_contents for cell in getattr(value, "__closure__", None) or () if cell != cell.__class__()]
        more = [
            getattr(value, name, None) for name in ("__wrapped__", "__defaults__", "__kwdefaults__", "func", "args")
        ]
        return [*parts, *(("closure", part) for part in closed), *(("part", part) for part in more)]
    return []


def pumped(pattern: re.Pattern[Any], size: int, *, seed: int = 0) -> Iterator[str]:
    """Strings of ``size`` characters, each of them one part of ``pattern`` repeated."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags & ~re.UNICODE
    rng = random.Random(f"{seed} {text}")
    units: dict[tuple[str, str], None] = {}
    parsed = _parser.parse(text, flags)
    _collect("", list(parsed), units, rng)
    alphabet = sorted({unit for _, unit in units})
    for _ in range(8):
        units["", "".join(rng.choice(alphabet or ["a"]) for _ in range(rng.randint(2, 4)))] = None
    chosen = list(units)
    if len(chosen) > _MOST_UNITS:
        chosen = sorted(rng.sample(chosen, _MOST_UNITS))
    for before, unit in chosen:
        for prefix in {"": None, before: None}:
            for end in _ENDS:
                yield prefix + unit * max(1, (size - len(prefix)) // len(unit)) + end


def text_of(nodes: list[Any], rng: random.Random) -> str:
    """A string that a parsed expression matches, as far as what it looks around for lets it."""
    return _collect("", nodes, {}, rng)


def _collect(before: str, nodes: list[Any], units: dict[tuple[str, str], None], rng: random.Random) -> str:
    """Note each part of a sequence with what stands before it; a string that all of the sequence matches."""
    samples: list[str] = []
    words: list[str] = []  # the same, with neighbouring literals as one
    literal = False
    for node in nodes:
        sample = _sample(before + "".join(samples), node, units, rng)
        samples.append(sample)
        if literal and str(node[0]) == "LITERAL":
            words[-1] += sample
        else:
            words.append(sample)
        literal = str(node[0]) == "LITERAL"
    for first, last in itertools.combinations(range(len(words) + 1), 2):
        unit = "".join(words[first:last])
        if unit and (last - first <= 4 or last == len(words)):
            units[before + "".join(words[:first]), unit] = None
    return "".join(samples)


def _sample(before: str, node: Any, units: dict[tuple[str, str], None], rng: random.Random) -> str:
    kind, value = node
    name = str(kind)
    if name == "LITERAL":
        units[before, chr(value)] = None
        return chr(value)
    if name in ("NOT_LITERAL", "ANY", "IN", "CATEGORY"):
        characters = _of_class(node)
        for character in characters[:6]:
            units[before, character] = None
        return rng.choice(characters[:6]) if characters else ""
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, inner = value
        unit = _collect(before, list(inner), units, rng)
        return unit * (least or min(int(most), 1))
    if name == "SUBPATTERN":
        return _collect(before, list(value[3]), units, rng)
    if name == "ATOMIC_GROUP":
        return _collect(before, list(value), units, rng)
    if name == "BRANCH":
        samples = [_collect(before, list(branch), units, rng) for branch in value[1]]
        return rng.choice(samples)
    if name in ("ASSERT", "ASSERT_NOT"):
        _collect(before, list(value[1]), units, rng)
    return ""


def _of_class(node: Any) -> list[str]:
    """Characters that a class takes, unlike each other."""
    pattern = _parser.SubPattern(_parser.State(), [node])
    compiled = re._compiler.compile(pattern, re.DOTALL)  # type: ignore[attr-defined]
    letters = [c for c in _EVERY_CHARACTER if compiled.fullmatch(c)]
    return letters or [chr(at) for at in range(128) if compiled.fullmatch(chr(at))]


class TooLong(BaseException):
    """The time given to one call is over. Not an Exception: nothing in between may swallow it."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """At most so much CPU time; raises `TooLong`. The engine of `re` looks for signals now and then."""

    def ended(number: int, frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, ended)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run(pattern: re.Pattern[Any], method: str, text: str) -> float:
    """CPU seconds of one call."""
    subject: Any = text if isinstance(pattern.pattern, str) else text.encode("latin-1")
    call = getattr(pattern, method)
    began = time.process_time()
    if method in ("sub", "subn"):
        call("" if isinstance(subject, str) else b"", subject)
    elif method == "finditer":
        for _ in call(subject):
            pass
    else:
        call(subject)
    return time.process_time() - began


def often(pattern: re.Pattern[Any], method: str, text: str) -> float:
    """CPU seconds of one call, of as many as a clock of coarse ticks needs."""
    count, took = 0, 0.0
    while took < _ENOUGH_SECONDS and count < _ENOUGH_CALLS:
        took += run(pattern, method, text)
        count += 1
    return took / count


def strictest(methods: frozenset[str]) -> frozenset[str]:
    """The methods to try: one that looks at every place stands for all that do."""
    looking = methods - _ANCHORED
    return (methods & _ANCHORED) | (frozenset({"findall"}) if looking else frozenset())


def may_backtrack(pattern: re.Pattern[Any]) -> bool:
    """Whether anything in ``pattern`` may be repeated often: without, each place costs no more than a constant."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")

    def often(node: Any) -> bool:
        if isinstance(node, tuple) and node and str(node[0]).endswith("REPEAT") and int(node[1][1]) > _OFTEN:
            return True
        return isinstance(node, (tuple, list, _parser.SubPattern)) and any(map(often, node))

    return often(_parser.parse(text, pattern.flags & ~re.UNICODE))


def slow(use: Use, *, size: int = 20_000, floor: float = 0.003, ratio: float = 2.5) -> str | None:
    """What makes ``use`` take more than ``ratio`` times as long for double the length, or None."""
    if not may_backtrack(use.pattern):
        return None
    texts = zip(*(pumped(use.pattern, length) for length in (size // 4, size // 2, size)), strict=True)
    for quarter, half, whole in texts:
        for method in sorted(strictest(use.methods)):
            shown = f"{use.place}.{method}: {whole[:60]!r}... {whole[-8:]!r}"
            try:
                with limit(2.0):
                    # What is quadratic takes a sixteenth of the whole for a quarter.
                    if any(run(use.pattern, method, quarter) < floor / 16 for _ in range(3)):
                        continue
                    if any(run(use.pattern, method, whole) < floor for _ in range(3)):
                        continue
                    for _ in range(4):  # another program may have taken the time: only what stays slow is
                        fewer, more = often(use.pattern, method, half), often(use.pattern, method, whole)
                        if more <= max(floor, fewer * ratio):
                            break
                    else:
                        return f"{shown}: {fewer:.4f} s, double: {more:.4f} s"
            except TooLong:
                return f"{shown}: more than 2 s"
    return None
