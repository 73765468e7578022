"""The same problem launches the same row of kernels again: what that speaks for, and what it puts in doubt."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from mio2trace.align.links import NONE, Links
from mio2trace.align.operations.stream import Stream
from mio2trace.evidence import NAME_AND_SIZES, ORDER, RECURRENCE
from mio2trace.kernels.names import kernel_name

LEARNED = 4
"""So many calls of a problem must launch the same kernels for one that does not."""
_WEAKER = frozenset((NAME_AND_SIZES, ORDER))
_Row = tuple[tuple[str, object], ...]
"""Names and work sizes of an operation's kernels, in order."""


def learn(stream: Stream, links: Links) -> None:
    """The same problem launches the same kernels again (miopen-log.md 10): who disagrees is in doubt.

    A row of kernels is learned from the calls of a problem that are sure; nearly all of them must agree.
    """
    members: dict[int, list[int]] = defaultdict(list)
    places = {operation.index: place for place, operation in enumerate(stream.operations)}
    for position in stream.positions:
        index = links.operation_of[position]
        if index != NONE:
            members[places[index]].append(position)
    if links.operation_unsure:
        _even_out(stream, links, members)
    learned: dict[int, Counter[_Row]] = defaultdict(Counter)
    rows = {place: _row(stream, positions) for place, positions in members.items()}
    for place, positions in members.items():
        if links.operation_unsure.isdisjoint(positions):
            learned[stream.likeness.operation_class(place)][rows[place]] += 1
    for place, positions in members.items():
        if _has_too_many(stream, place, positions):
            links.contradictions["more GEMMs than images"] += 1
            links.doubt_operation(positions)
        usual = learned.get(stream.likeness.operation_class(place))
        if not usual:
            continue
        row, count = usual.most_common(1)[0]
        if count < LEARNED * (usual.total() - count):
            continue
        if rows[place] != row:
            links.contradictions["kernels differ from those of the same problem"] += 1
            links.doubt_operation(positions)
        elif not links.operation_unsure.isdisjoint(positions):
            # It speaks for the row, not for which of two equal calls launched it: the doubt stays.
            index = stream.operations[place].index
            for position in positions:
                if links.operation_by[position] in _WEAKER:
                    links.give_operation([position], index, RECURRENCE, sure=position not in links.operation_unsure)


def _row(stream: Stream, positions: Sequence[int]) -> _Row:
    activities = stream.profile.activities
    return tuple((activities[position].name, activities[position].grid) for position in positions)


def _has_too_many(stream: Stream, place: int, positions: Sequence[int]) -> bool:
    """Whether an executed convolution has more GEMMs than images and groups to compute (miopen-log.md 11.1)."""
    operation = stream.operations[place]
    if operation.primitive != "conv" or operation.phase != "run" or not operation.input:
        return False
    mains = 0
    for position in positions:
        name = kernel_name(stream.profile.activities[position].name)
        mains += name is not None and name.algorithm == "Gemm" and name.role == "main"
    return mains > max(1, operation.input[0]) * (operation.groups or 1)


def _even_out(stream: Stream, links: Links, members: dict[int, list[int]]) -> None:
    """Calls of one problem right after each other, with nothing to tell where one ends: all have the same row."""
    place, count = 0, len(stream.operations)
    while place < count:
        kind = stream.likeness.operation_class(place)
        end = place + 1
        while end < count and stream.likeness.operation_class(end) == kind:
            end += 1
        positions = [position for call in range(place, end) for position in members.get(call, ())]
        calls = end - place
        if calls > 1 and positions and len(positions) % calls == 0 and not links.operation_unsure.isdisjoint(positions):
            each = len(positions) // calls
            parts = [positions[at : at + each] for at in range(0, len(positions), each)]
            if len({_row(stream, part) for part in parts}) == 1:
                for call, part in zip(range(place, end), parts, strict=True):
                    members[call] = part
                    links.move_operation(part, stream.operations[call].index)
        place = end
