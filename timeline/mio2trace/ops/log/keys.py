"""Find-db keys and network configs: a convolution's shapes, layout, type, direction in a word (miopen-log.md 8.5)."""

from __future__ import annotations

import re
from functools import lru_cache

from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.values import KEY_DTYPES, integers

_DIRECTIONS: dict[str, OperationDirection] = {"F": "forward", "B": "backward-data", "W": "backward-weights"}
_FIND_DB = re.compile(
    r"([0-9][0-9x-]*)-((?:[A-Z]{3}\w*+-)+?)(\w++)-([FBW])(?:_g([0-9]{1,6}))?(?:_.*)?",
    re.DOTALL,
)
_FIELD = re.compile(r"-?[0-9]{1,9}")
_LAYOUT = re.compile(r"N[CDHW]{2,4}\w*|C[DHW]{2,3}N\w*")


@lru_cache(maxsize=1 << 12)
def find_db_key(text: str) -> ConvProblem | None:
    """``C-H-W-YxX-K-OH-OW-N-PxQ-UxV-LxJ-bias-layout[-layout-layout]-type-direction[_gG]``; with depth in 3-D."""
    found = _FIND_DB.fullmatch(text)
    if found is None:
        return None
    fields = found[1].split("-")
    at = next((index for index, field in enumerate(fields) if "x" in field), 0)
    rank = at - 1
    if rank not in (2, 3) or len(fields) != 2 * rank + 8:
        return None
    if not all(one.isascii() and one.isdecimal() and len(one) < 10 for one in fields[at + 1 : at + 3 + rank]):
        return None
    first, window = integers("-".join(fields[:at]).replace("-", " ")), integers(fields[at].replace("x", " "))
    out, n = fields[at + 1 : at + 2 + rank], fields[at + 2 + rank]
    pads, strides, dilations = (integers(field.replace("x", " ")) for field in fields[at + 3 + rank : at + 6 + rank])
    return _problem(
        first,
        window,
        tuple(map(int, out)),
        int(n),
        pads,
        strides,
        dilations,
        int(found[5] or "1"),
        _DIRECTIONS[found[4]],
        tuple(found[2].rstrip("-").split("-")),
        found[3],
    )


@lru_cache(maxsize=1 << 12)
def network_config(text: str, direction: OperationDirection | None = None) -> ConvProblem | None:
    """``CxHxWxYxXxKxOHxOWxNxLAYOUT[xWLxOL]xTYPExPxQxUxVxLxJxG[xDIR][x...]``.

    ``direction`` is the one known from elsewhere, for the older form that ends after the groups.
    """
    fields = text.split("x")
    at = next((index for index, field in enumerate(fields) if _LAYOUT.fullmatch(field)), 0)
    if at not in (9, 12):
        return None
    rank = 2 if at == 9 else 3
    end = at
    while end < len(fields) and _LAYOUT.fullmatch(fields[end]):
        end += 1
    rest = fields[end + 1 :]
    if len(rest) < 3 * rank + 1 or not all(_FIELD.fullmatch(one) for one in fields[:at] + rest[: 3 * rank + 1]):
        return None
    numbers = tuple(map(int, fields[:at]))
    descriptor = tuple(map(int, rest[: 3 * rank + 1]))
    letter = rest[3 * rank + 1] if len(rest) > 3 * rank + 1 else ""
    direction = _DIRECTIONS.get(letter, direction)
    if direction is None:
        return None
    return _problem(
        numbers[: rank + 1],
        numbers[rank + 1 : 2 * rank + 1],
        numbers[2 * rank + 1 : 3 * rank + 2],
        numbers[3 * rank + 2],
        descriptor[:rank],
        descriptor[rank : 2 * rank],
        descriptor[2 * rank : 3 * rank],
        descriptor[3 * rank],
        direction,
        tuple(fields[at:end]),
        fields[end],
    )


def _problem(
    first: tuple[int, ...],
    window: tuple[int, ...],
    second: tuple[int, ...],
    n: int,
    pads: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int,
    direction: OperationDirection,
    layouts: tuple[str, ...],
    dtype: str,
) -> ConvProblem | None:
    """For the gradients the first fields describe dy and the later ones x (miopen-log.md 8.5)."""
    x, y = (first, second) if direction == "forward" else (second, first)
    if groups <= 0 or not x or x[0] % groups:
        return None
    if len(layouts) != 3:
        layouts = layouts[:1] * 3
    elif direction != "forward":
        layouts = (layouts[2], layouts[1], layouts[0])
    problem = ConvProblem(
        direction=direction,
        dtype=KEY_DTYPES.get(dtype),
        x=(n, *x),
        w=(y[0], x[0] // groups, *window),
        y=(n, *y),
        pads=pads,
        strides=strides,
        dilations=dilations,
        groups=groups,
        layouts=(layouts[0], layouts[1], layouts[2]),
    )
    return problem if problem.well_formed() else None
