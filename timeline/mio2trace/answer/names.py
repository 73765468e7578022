"""Names that fit into a column, and differ from each other where the full names do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from mio2trace.answer.content import KernelRow, LayerRow, OperationRow, ProblemRow
from mio2trace.kernels.names import normalise

_TENSILE = re.compile(r"Cijk_(?P<layout>[A-Z][a-z]{3}_[A-Z][a-z]{3})_(?P<rest>.*)", re.ASCII)
_TYPES = re.compile(r"[A-Z0-9]{1,6}(?:_[BH]+)*(?=_|$)", re.ASCII)
_TILE = re.compile(r"MT\d+x\d+x\d+", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_WRAPPERS = ("elementwise_kernel", "reduce_kernel", "multi_tensor_apply_kernel", "index_elementwise_kernel")
_OPERATIONS = ("_Op", "_op", "Operator", "Functor")
_LONGEST = 2000
_COMMON = 14
"""Characters of the beginning that stay if the middle of a name is left out."""


def short_kernel(name: str) -> str:
    """What tells a kernel from others of its library: of Tensile type and macro tile, of PyTorch the functor."""
    plain = normalise(name)
    found = _TENSILE.match(plain)
    if found is not None:
        types, tile = _TYPES.match(found["rest"]), _TILE.search(found["rest"])
        parts = ["Cijk", found["layout"], types[0] if types else "", tile[0] if tile else ""]
        return " ".join(filter(None, parts))
    if any(plain.endswith(wrapper) for wrapper in _WRAPPERS):
        _, _, arguments = name.partition("<")
        words = _WORD.findall(arguments[:_LONGEST])
        functor = next(
            (word for word in words if "unctor" in word or (word.endswith(("Op", "Ops")) and len(word) > 3)), ""
        )
        return f"{functor.removeprefix('CUDAFunctor_')} ({plain})" if functor else plain
    return plain


def shown_names(rows: Sequence[LayerRow | OperationRow | ProblemRow | KernelRow], width: int) -> list[str]:
    """Of the rows of a list, as every form of the answer shows them."""
    names = [_name(row, width) for row in rows]
    count = Counter(names)
    for at, row in enumerate(rows):
        if count[names[at]] > 1 and isinstance(row, OperationRow) and row.layer:
            names[at] = _in_layer(row.name, row.layer, width)
    short = [short_kernel(n) if isinstance(row, KernelRow) else n for n, row in zip(names, rows, strict=True)]
    return distinct(names, short, width)


def _name(row: LayerRow | OperationRow | ProblemRow | KernelRow, width: int) -> str:
    if isinstance(row, LayerRow):
        return f"{row.name} {row.direction}" if row.direction else row.name
    if isinstance(row, OperationRow) and row.layer:
        return f"{row.name} in {row.layer}" if len(row.name) + len(row.layer) + 4 <= width else row.name
    if isinstance(row, ProblemRow) and row.ns is None:
        return f"{row.name} x {row.calls:,.0f}"
    return row.name.removeprefix("void ") if isinstance(row, KernelRow) else row.name


def _in_layer(name: str, layer: str, width: int) -> str:
    """An operation that reads as another one: its layer counts more than the end of its name."""
    longest = width // 2
    if len(layer) > longest:
        layer = f"{layer[: longest // 3]}...{layer[3 + longest // 3 - longest :]}"
    return f"{_end_cut(name, width - len(layer) - 4)} in {layer}"


def distinct(names: Sequence[str], shown: Sequence[str], width: int) -> list[str]:
    """``shown``, short forms of ``names``, cut to ``width``; those that read the same show where they differ."""
    cut = [_end_cut(text, width) for text in shown]
    for text in dict.fromkeys(cut):
        alike = [at for at, other in enumerate(cut) if other == text]
        if len(alike) > 1:
            for at in alike:
                others = [names[other] for other in alike if other != at and names[other] != names[at]]
                cut[at] = _middle_cut(names[at], others, width) if others else cut[at]
    numbers: dict[str, list[str]] = {}
    for at, text in enumerate(cut):  # names that differ in several places may still read the same
        alike_names = numbers.setdefault(text, [])
        if names[at] not in alike_names:
            alike_names.append(names[at])
        number = alike_names.index(names[at]) + 1
        if number > 1:
            cut[at] = f"{_end_cut(text, width - 4)} #{number}"
    return cut


def _end_cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _middle_cut(name: str, others: Sequence[str], width: int) -> str:
    """The beginning, and the part in which the name differs from one that reads the same."""
    at = min(_first_difference(name, other) for other in others)
    room = width - _COMMON - 3
    begin = max(name.rfind(mark, 0, at) for mark in "_ <,:(") + 1
    if begin <= _COMMON and at < width - 3:
        return _end_cut(name, width)
    if begin <= _COMMON or at - begin > room - 4:  # the word is too long to be shown up to the difference
        begin = max(at - room // 2, _COMMON)
    rest = name[begin:]
    return f"{name[:_COMMON]}...{rest if len(rest) <= room else rest[: room - 3] + '...'}"


def _first_difference(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
