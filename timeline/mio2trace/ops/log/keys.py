"""Find-db keys and network configs: shapes, layout, type and direction of a convolution in one word (miopen-log.md
8.5)."""

from __future__ import annotations

import re
from functools import lru_cache

from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.families.conv import ConvProblem, output_length, transposed_length
from mio2trace.ops.family import DIRECTIONS
from mio2trace.ops.values import KEY_DTYPES, ConvDescriptor, Shape, integers
from mio2trace.patterns import late

_DIRECTIONS = dict(zip("FBW", DIRECTIONS, strict=True))
_FIND_DB = late(r"([0-9][0-9x-]*)-((?:[A-Z]{3}\w*+-)+?)(\w++)-([FBW])(?:_g([0-9]{1,6}))?(?:_.*)?", re.DOTALL)
_FIELD = late(r"-?[0-9]{1,9}")
_LAYOUT = late(r"N[CDHW]{2,4}\w*|C[DHW]{2,3}N\w*")


@lru_cache(maxsize=1 << 12)
def find_db_key(text: str) -> ConvProblem | None:
    """``C-H-W-YxX-K-OH-OW-N-PxQ-UxV-LxJ-bias-layout[-layout-layout]-type-direction[_gG]``; with depth in 3-D."""
    key = _FIND_DB.fullmatch(text)
    if key is None:
        return None
    fields = key[1].split("-")
    at = next((index for index, field in enumerate(fields) if "x" in field), 0)
    rank = at - 1
    if rank not in (2, 3) or len(fields) != 2 * rank + 8:
        return None
    if not all(field.isascii() and field.isdecimal() and len(field) < 10 for field in fields[at + 1 : at + 3 + rank]):
        return None
    first, window = integers("-".join(fields[:at]).replace("-", " ")), integers(fields[at].replace("x", " "))
    out, n = fields[at + 1 : at + 2 + rank], fields[at + 2 + rank]
    pads, strides, dilations = (integers(field.replace("x", " ")) for field in fields[at + 3 + rank : at + 6 + rank])
    descriptor = ConvDescriptor(pads, strides, dilations, "convolution", int(key[5] or "1"))
    layouts = tuple(key[2].rstrip("-").split("-"))
    return _problem(first, window, tuple(map(int, out)), int(n), descriptor, _DIRECTIONS[key[4]], layouts, key[3])


@lru_cache(maxsize=1 << 12)
def network_config(text: str, direction: OperationDirection | None = None) -> ConvProblem | None:
    """Read ``CxHxWxYxXxKxOHxOWxNxLAYOUT[xWLxOL]xTYPExPxQxUxVxLxJxG[xDIR][x...]``.

    ``direction``: known from elsewhere, for the older form that ends after the groups.
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
    if len(rest) < 3 * rank + 1 or not all(_FIELD.fullmatch(field) for field in fields[:at] + rest[: 3 * rank + 1]):
        return None
    numbers = tuple(map(int, fields[:at]))
    *sizes, groups = map(int, rest[: 3 * rank + 1])
    pads, strides, dilations = (tuple(sizes[place : place + rank]) for place in range(0, 3 * rank, rank))
    descriptor = ConvDescriptor(pads, strides, dilations, "convolution", groups)
    letter = rest[3 * rank + 1] if len(rest) > 3 * rank + 1 else ""
    direction = _DIRECTIONS.get(letter, direction)
    if direction is None:
        return None
    first, window = numbers[: rank + 1], numbers[rank + 1 : 2 * rank + 1]
    second, batch = numbers[2 * rank + 1 : 3 * rank + 2], numbers[3 * rank + 2]
    return _problem(first, window, second, batch, descriptor, direction, tuple(fields[at:end]), fields[end])


_MIXED = late("|".join(sorted(KEY_DTYPES, key=len, reverse=True)))
"""The type of the input comes first. The types of input, weights and output are one word if they are equal."""


_PERF_DB_WORDS = 3
_PERF_DB_NUMBERS = 21


@lru_cache(maxsize=1 << 12)
def perf_db_values(text: str) -> ConvProblem | None:
    """Read ``layout,type,direction,spatial_dim,C,H,W,D,y,x,fd,K,N,p,q,pd,u,v,ud,l,j,ld,bias,groups`` of a perf-db
    look-up.

    These are the fields of `find_db_key` without the sizes after the window. For a gradient with a stride they do not
    determine the problem: None.
    """
    fields = text.split(",")
    words, rest = fields[:_PERF_DB_WORDS], fields[_PERF_DB_WORDS:]
    if len(rest) != _PERF_DB_NUMBERS or not all(map(_FIELD.fullmatch, rest)) or words[2] not in _DIRECTIONS:
        return None
    numbers = [int(field) for field in rest]
    rank, channels, outputs, batch, groups = numbers[0], numbers[1], numbers[8], numbers[9], numbers[20]
    if rank not in (2, 3):
        return None

    def sizes(at: int) -> Shape:
        height, width, depth = numbers[at : at + 3]
        return (depth, height, width) if rank == 3 else (height, width)

    lengths, window, pads, strides, dilations = map(sizes, (2, 5, 10, 13, 16))
    direction = _DIRECTIONS[words[2]]
    if min((*strides, *dilations, *window)) < 1 or (direction != "forward" and max(strides) > 1):
        return None
    behind = output_length if direction == "forward" else transposed_length
    second = tuple(behind(*dimension) for dimension in zip(lengths, pads, strides, dilations, window, strict=True))
    descriptor = ConvDescriptor(pads, strides, dilations, "convolution", groups)
    x, y = (channels, *lengths), (outputs, *second)
    return _problem(x, window, y, batch, descriptor, direction, (words[0],), words[1])


def _problem(
    first: Shape,
    window: Shape,
    second: Shape,
    batch: int,
    descriptor: ConvDescriptor,
    direction: OperationDirection,
    layouts: tuple[str, ...],
    dtype: str,
) -> ConvProblem | None:
    """Make the problem. ``first`` and ``second``: channels and sizes before and after the window. For gradients the
    first describes dy, the second x (miopen-log.md 8.5)."""
    groups, forward = descriptor.groups or 0, direction == "forward"
    x, y = (first, second) if forward else (second, first)
    if groups <= 0 or not x or x[0] % groups:
        return None
    if len(layouts) != 3:
        layouts = layouts[:1] * 3
    elif not forward:
        layouts = (layouts[2], layouts[1], layouts[0])
    stated = _MIXED.match(dtype)
    problem = ConvProblem(
        direction=direction, dtype=None if stated is None else KEY_DTYPES[stated[0]], x=(batch, *x),
        w=(y[0], x[0] // groups, *window), y=(batch, *y), pads=descriptor.pads, strides=descriptor.strides,
        dilations=descriptor.dilations, groups=groups, layouts=(layouts[0], layouts[1], layouts[2]),
    )  # fmt: skip
    return problem if problem.well_formed() else None
