"""The process and the queue of a log's calls, by their buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mio2trace.align.links import NONE, Links
from mio2trace.align.operations.rows.kinds import FIRST_ADDRESS, buffers_among
from mio2trace.evidence import BUFFERS
from mio2trace.kernels.names import kernel_name
from mio2trace.model.profile import Profile
from mio2trace.model.tables import distinct
from mio2trace.ops.operation import Operation

ENOUGH_BUFFERS, MOST_BUFFERS = 6, 10_000
"""This number of common addresses is no coincidence, nor is this number without a common one."""
SEARCHED_QUEUES = 8
"""Calls without a known queue are searched in the largest queues. With more queues no link would be sure."""


def same_process(profile: Profile, operations: Sequence[Operation]) -> bool | None:
    """Return whether the log's buffers are the profile's; None if too few are named."""
    if not operations:
        return None
    in_profile = buffers_of(profile)
    named: set[int] = set()
    common = 0
    for operation in operations:
        addresses = {address for address in operation.pointers if address >= FIRST_ADDRESS} - named
        named |= addresses
        common += len(addresses & in_profile)
        if common >= ENOUGH_BUFFERS:
            return True
    return False if min(len(named), len(in_profile)) >= ENOUGH_BUFFERS and not common else None


def buffers_of(profile: Profile) -> set[int]:
    """Return buffers among the arguments of the library's kernels, up to about `MOST_BUFFERS`."""
    in_profile: set[int] = set()
    commands = profile.commands
    of_library = commands.name.where(lambda name: (meaning := kernel_name(name)) is not None and meaning.miopen)
    launches = commands.opencl.codes[commands.is_kernel & of_library]
    for code in launches[distinct(launches)[0]].tolist():
        in_profile.update(buffers_among(commands.opencl.values[code].arguments))
        if len(in_profile) >= MOST_BUFFERS:
            break
    return in_profile


def of_streams(
    profile: Profile,
    streams: Mapping[tuple[int, int], Sequence[int]],
    operations: Sequence[Operation],
    without: frozenset[str],
) -> dict[tuple[int, int], list[Operation]]:
    """Return the operations that each stream may have: by thread id, buffers, thread, else in all large streams."""
    if len(streams) == 1:
        return {key: list(operations) for key in streams}
    tid_of = {thread.index: thread.tid for thread in profile.threads}
    by_tid: dict[int | None, list[tuple[int, int]]] = {}
    for key in streams:
        by_tid.setdefault(tid_of.get(key[0]), []).append(key)
    stream_of = {} if BUFFERS in without else _streams_of_buffers(profile, streams)
    owner: list[tuple[int, int] | None] = []
    votes: dict[int | None, Counter[tuple[int, int]]] = {}
    for operation in operations:
        claims = {stream_of[address] for _, address in operation.tensors if address in stream_of}
        own = claims.pop() if len(claims) == 1 else None
        owner.append(own)
        if own is not None:
            votes.setdefault(operation.thread, Counter())[own] += 1
    of_thread = {
        thread: counter.most_common(1)[0][0]
        for thread, counter in votes.items()
        if thread is not None and len(counter) == 1
    }
    fullest = _fullest(streams, streams)
    by_tid = {tid: _fullest(keys, streams) for tid, keys in by_tid.items()}
    of_each: dict[tuple[int, int], list[Operation]] = {key: [] for key in streams}
    for operation, own in zip(operations, owner, strict=True):
        if operation.thread is not None and operation.thread in by_tid:
            for key in by_tid[operation.thread]:
                of_each[key].append(operation)
            continue
        chosen = own if own is not None or operation.thread is None else of_thread.get(operation.thread)
        for each in fullest if chosen is None else [chosen]:
            of_each[each].append(operation)
    return of_each


def _streams_of_buffers(
    profile: Profile, streams: Mapping[tuple[int, int], Sequence[int]]
) -> dict[int, tuple[int, int] | None]:
    stream_of: dict[int, tuple[int, int] | None] = {}
    for key, positions in streams.items():
        for position in positions:
            for address in buffers_among(profile.activities[position].opencl.arguments):
                if stream_of.setdefault(address, key) != key:
                    stream_of[address] = None
    return stream_of


def _fullest(
    keys: Iterable[tuple[int, int]], streams: Mapping[tuple[int, int], Sequence[int]]
) -> list[tuple[int, int]]:
    most = set(sorted(keys, key=lambda key: -len(streams[key]))[:SEARCHED_QUEUES])
    return [key for key in streams if key in most]


def of_its_threads(profile: Profile, operations: Sequence[Operation]) -> Sequence[Operation]:
    """Remove operations of threads that another process has, unless no id of the log is the profile's."""
    tids = {thread.tid for thread in profile.threads if thread.tid is not None}
    if tids.isdisjoint(operation.thread for operation in operations):
        return operations
    return [operation for operation in operations if operation.thread is None or operation.thread in tids]


def one_stream_each(links: Links, streams: Mapping[tuple[int, int], Sequence[int]]) -> None:
    """Doubt operations with kernels in two queues."""
    if len(streams) < 2:
        return
    claimed: dict[int, tuple[int, int]] = {}
    doubted: set[int] = set()
    for key, positions in streams.items():
        for position in positions:
            index = links.operation_of[position]
            if index != NONE and claimed.setdefault(index, key) != key:
                doubted.add(index)
    links.doubt_operation(position for position, index in enumerate(links.operation_of) if index in doubted)
