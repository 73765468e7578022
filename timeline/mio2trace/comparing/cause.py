"""Why a part differs: what is another about it, in a few words. Kernels are looked at inside of a matched part only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mio2trace.comparing.match import Pair
from mio2trace.comparing.record import Inside, Part

_HELPERS_SHOWN = ("transpose", "cast", "fill", "im2col", "padding", "pad")
_LONGEST_NAME = 40


def cause(pair: Pair) -> str:
    """Statements on what changed, with ``; `` between them; empty where nothing is seen but the time."""
    if pair.a is None or pair.b is None:
        return ""
    return "; ".join(_differences(pair, pair.a.part, pair.b.part))


def _differences(pair: Pair, a: Part, b: Part) -> Iterator[str]:
    if pair.how == "batch":
        yield f"another batch: {b.name}"
    elif pair.how == "place" or (pair.how == "structure" and a.name != b.name):
        yield f"renamed: {b.name}"
    elif a.like != b.like and a.like and b.like and a.kind == "layer":
        yield "another shape"
    if a.solvers != b.solvers and (a.solvers or b.solvers):
        yield f"solver {_words(a.solvers)} -> {_words(b.solvers)}"
    if a.kernels and b.kernels:
        yield from _kernels(a, b, bool(a.kind == "problem"))
    if a.calls and b.calls and round(a.calls, 3) != round(b.calls, 3):
        yield f"{a.calls:g} -> {b.calls:g} calls"


def _kernels(a: Part, b: Part, named: bool) -> Iterator[str]:
    if any(one.naive for one in b.kernels) and not any(one.naive for one in a.kernels):
        yield "naive now"
    elif any(one.naive for one in a.kernels) and not any(one.naive for one in b.kernels):
        yield "naive no more"
    roles_a, roles_b = _roles(a), _roles(b)
    for role in dict.fromkeys((*roles_a, *roles_b)):
        more = round(roles_b[role] - roles_a[role], 3)
        if role != "main" and role and more:
            yield f"{more:+g} {role}{'s' if abs(more) != 1 else ''}"
    main_a, main_b = _main(a), _main(b)
    if named and main_a and main_b and main_a != main_b and a.solvers == b.solvers:
        yield f"kernels {_words(main_a)} -> {_words(main_b)}"


def _roles(part: Part) -> Counter[str]:
    """How many kernels of each role, a call."""
    roles: Counter[str] = Counter()
    for one in part.kernels:
        roles[one.role] += one.count / (part.calls or 1)  # type: ignore[assignment]
    return roles


def _main(part: Part) -> tuple[str, ...]:
    return tuple(sorted(one.name for one in part.kernels if _is_main(one)))


def _is_main(one: Inside) -> bool:
    return one.role in ("main", "")


def _words(names: tuple[str, ...]) -> str:
    if not names:
        return "none"
    short = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..." for name in names[:3]]
    return ", ".join(short) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
