"""The steps of the ladder that link kernels to operations."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations
from math import inf, log

import numpy as np

from mio2trace.align.attribution import Attribution
from mio2trace.align.links import NONE, SURE, Links
from mio2trace.align.operations.lattice import (
    BUFFERED,
    Late,
    Windows,
    by_lines,
    by_stamps,
    everywhere,
    of_streams,
    one_stream_each,
    stamped_lines,
)
from mio2trace.align.operations.likelihood import Likelihood
from mio2trace.align.operations.rows import divided
from mio2trace.align.operations.stream import Stream, solve_together
from mio2trace.align.rates import BESIDE_STRANGERS, FEW, HARDLY_ANY
from mio2trace.align.same_run import begun_again
from mio2trace.evidence import BOUNDARY_STAMPS, EXACT, LAUNCH_LINE, NAME_AND_SIZES, ORDER, POSITION
from mio2trace.model.tables import by_key, combined, sorted_pool
from mio2trace.ops.operation import Operation

MOST_THREADS = 4
"""Up to this number of threads, all assignments to queues are tried."""
_Key = tuple[int, int]
_Queues = Mapping[_Key, Sequence[int]]


def link_operations(attribution: Attribution) -> None:
    """Link each kernel to the operation that launched it, or to none."""
    profile, links, without = attribution.profile, attribution.links, attribution.without
    if not attribution.operations or any(index != NONE for index in attribution.operation_of_range):
        return  # where the library's own ranges tell its calls, what was launched outside of them is of none
    commands = profile.commands
    any_replayed = bool(commands.is_replayed.any())
    captured: Mapping[int, float] = {}
    rows = np.flatnonzero(commands.is_kernel & ~commands.is_replayed)
    threads = sorted_pool(commands.thread[rows])
    keys = combined(threads.codes, commands.queues.codes[rows])
    streams = {
        (int(commands.thread[own[0]]), int(commands.queue[own[0]])): array("q", own.tobytes())
        for _, own in by_key(rows, keys)
    }
    of_stream = of_streams(profile, streams, attribution.operations, without)
    joined = _joined(attribution, streams, of_stream)
    if (attribution.clock is None or attribution.clock.is_doubtful) and attribution.host_times is not None:
        together = [*joined]
        draft = Links(profile.activities, attribution.operations)
        for stream in together:
            stream.link(draft)
        attribution.fit_clock(draft)
        captured = _captured(attribution) if any_replayed else {}
        launching = [one for one in attribution.operations if captured.get(one.index, 0) <= 1 / 2]
        of_stream = of_streams(profile, streams, launching, without) if captured else of_stream
        joined = _joined(attribution, streams, of_stream) if attribution.fitted else iter(together)
    for stream in joined:
        stream.link(links)
        if attribution.keep_reasons:
            attribution.streams.append(stream)
    one_stream_each(links, streams)
    if any_replayed:
        # Calls that were captured launched nothing by themselves: which of the log's they are no order tells.
        guessed = (position for position, word in enumerate(links.operation_by) if word and word not in EXACT)
        links.doubt_operation(
            position for position in guessed if not captured or links.operation_of[position] in captured
        )


def _captured(attribution: Attribution) -> dict[int, float]:
    """Return for calls that were printed during a stream capture the share of their time within it."""
    ends = sorted(
        (call.start_ns, call.end_ns or call.start_ns, "BeginCapture" in call.name)
        for call in attribution.profile.other_calls
        if call.start_ns is not None and ("BeginCapture" in call.name or "EndCapture" in call.name)
    )
    captures = [(begin, end) for (begin, _, opens), (_, end, goes_on) in pairwise(ends) if opens and not goes_on]
    of_lines, of_calls = attribution.fitted.get(False), attribution.fitted.get(True)
    lines, calls = stamped_lines(attribution.logs, attribution.operations, of_lines, of_calls, attribution.stamp_ns)
    own = {line: (low, high) for line, low, high in calls.tolist()}
    around = sorted(lines.tolist())
    at = [line for line, _, _ in around]
    captured: dict[int, float] = {}
    for operation in attribution.operations if captures else ():
        stamped = own.get(operation.line)
        place = bisect_left(at, operation.line)
        if stamped is None and not 0 < place < len(around):
            continue
        low, high = (around[place - 1][1], around[place][2]) if stamped is None else stamped
        inside = max(min(high, end) - max(low, begin) for begin, end in captures)
        if inside > 0:
            captured[operation.index] = inside / (high - low)
    return captured


def _joined(
    attribution: Attribution, streams: _Queues, of_stream: Mapping[_Key, Sequence[Operation]]
) -> Iterator[Stream]:
    """Return each queue with its likely operations, by the most likely assignment of threads."""
    joined = _streams(attribution, streams, of_stream)
    if len(streams) > 1:
        together = [*joined]
        of_threads = _queue_of_each_thread(attribution, streams, together)
        return iter(together) if of_threads is None else _streams(attribution, streams, of_threads)
    return (_of_buffered(attribution, _of_one_writer(attribution, stream)) for stream in joined)


def _streams(
    attribution: Attribution, streams: _Queues, of_stream: Mapping[_Key, Sequence[Operation]]
) -> Iterator[Stream]:
    claims = Counter(operation.index for operations in of_stream.values() for operation in operations)
    # Where nothing else is known, each of the queues that may have a call is as likely.
    elsewhere = {index: 1 - 1 / count for index, count in claims.items() if count > 1}
    # 1: a call is over before the next stamp; 2: before a stamp after the stream's next call; more: after some.
    slack = 1 if len(streams) == 1 else 2 * len(streams) if elsewhere else 2
    joined = (_stream(attribution, streams[key], of_stream[key], slack, elsewhere) for key in sorted(streams))
    if not elsewhere:
        return joined
    together = [*joined]
    solve_together(together)
    return iter(together)


def _stream(
    attribution: Attribution,
    positions: Sequence[int],
    operations: Sequence[Operation],
    slack: int,
    elsewhere: Mapping[int, float],
    late: Late = "",
) -> Stream:
    profile, without = attribution.profile, attribution.without
    operations = divided(operations, 2 * len(positions))
    windows = _windows(attribution, positions, operations, slack, late)
    likelihood = Likelihood(profile, positions, operations, attribution.facts, without)
    return Stream(profile, positions, likelihood, windows, elsewhere, without)


def _queue_of_each_thread(
    attribution: Attribution, streams: _Queues, joined: Sequence[Stream]
) -> dict[_Key, list[Operation]] | None:
    """Return the operations of each queue if each thread of the log fills one, and one assignment is far more likely.

    None if ids or buffers decide, or if fewer calls launch then: threads share queues."""
    operations = joined[0].operations
    of_thread: dict[int | None, list[Operation]] = {}
    for operation in operations:
        of_thread.setdefault(operation.thread, []).append(operation)
    several = 1 < len(of_thread) == len(streams) <= MOST_THREADS and None not in of_thread
    if not several or any(len(stream.operations) != len(operations) for stream in joined):
        return None
    tried = {
        (key, thread): _stream(attribution, positions, its, 2, {})
        for key, positions in streams.items()
        for thread, its in of_thread.items()
    }
    evidence = {pair: stream.solve().evidence for pair, stream in tried.items()}
    ways = [list(zip(sorted(streams), threads, strict=True)) for threads in permutations(of_thread)]
    worth = [sum(evidence[pair] for pair in way) for way in ways]
    best = ways[worth.index(max(worth))]
    launching = sum(len(tried[pair].launched()) for pair in best)
    mixed = len({index for stream in joined for index in stream.launched()})
    if not _is_one_far_likelier(worth) or launching < (1 - HARDLY_ANY) * mixed:
        return None
    return {key: of_thread[thread] for key, thread in best}


def _is_one_far_likelier(worth: Sequence[float], without: float = -inf) -> bool:
    """Return whether one way is so much likelier than the others, and than none (``without``), that it is sure."""
    best, second = sorted((*worth, -inf), reverse=True)[:2]
    return best + log(1 - SURE) >= max(second, without)


def _of_one_writer(attribution: Attribution, stream: Stream) -> Stream:
    """Return the queue with the calls of one writer if others launched little: they are another process's."""
    operations = stream.operations
    # Buffers tell more than versions do, of calls whose entries were mixed up, too.
    writers = [one.thread for one in operations] if attribution.same_process else _writers(operations)
    known = sorted({writer for writer in writers if writer is not None})
    if not 1 < len(known) <= MOST_THREADS or stream.of_this_process() == 1:
        return stream
    assert stream.posterior is not None
    alone = [
        _stream(
            attribution, stream.positions,
            [one for one, its in zip(operations, writers, strict=True) if its in (writer, None)], 1, {},
        )
        for writer in known
    ]  # fmt: skip
    worth = [one.solve().evidence for one in alone]
    best = alone[worth.index(max(worth))]
    is_likelier = _is_one_far_likelier(worth, stream.posterior.evidence)
    if not is_likelier or len(best.launched()) < (1 - HARDLY_ANY) * len(stream.launched()):
        return stream
    best.at_most = BESIDE_STRANGERS
    return best


def _writers(operations: Sequence[Operation]) -> list[int | None]:
    """Return who printed each call: the thread, else the library's version (by its handle, or command), or None."""
    threads = [operation.thread for operation in operations]
    if len({*threads} - {None}) > 1:
        return threads
    entries = Counter(one.api for one in operations if one.parameters is not None)
    stating = Counter(one.api for one in operations if one.parameters is not None and one.parameters.with_handle)
    with_handle = {api for api, count in stating.items() if count > FEW * entries[api]}  # others' entries were mixed up
    commanded = {one.api for one in operations if one.logged_command} - with_handle
    forms = [
        None
        if one.torn or one.parameters is None
        else int(one.parameters.with_handle)
        if one.api in with_handle
        else int(bool(one.logged_command))
        if one.api in commanded
        else None
        for one in operations
    ]
    is_few = min(forms.count(0), forms.count(1)) <= HARDLY_ANY * len(forms)
    return threads if is_few or not with_handle else forms


def _of_buffered(attribution: Attribution, stream: Stream) -> Stream:
    """Return the queue as if one stream of the log was buffered, if this is far more likely and links more kernels."""
    left = stream.left_over() if stream.windows.by == BOUNDARY_STAMPS else 0.0
    if left <= HARDLY_ANY or not stream.leaves_calls():
        return stream
    assert stream.posterior is not None
    ways = {late: _stream(attribution, stream.positions, stream.operations, 1, {}, late) for late in BUFFERED}
    worth = {late: one.solve().evidence + log(1 - SURE) for late, one in ways.items()}
    late = max(ways, key=worth.__getitem__)
    if worth[late] < stream.posterior.evidence or ways[late].left_over() >= left - HARDLY_ANY:
        return stream
    attribution.late = late
    attribution.notes.add(f"{BUFFERED[late]} came into the log late, in blocks (a buffered stream)")
    return ways[late]


def _windows(
    attribution: Attribution, positions: Sequence[int], operations: Sequence[Operation], slack: int, late: Late
) -> Windows:
    """Return the operations that each kernel may have by lines of one file, else by stamps."""
    axis, windows = attribution.shared_axis, None
    if axis is not None and POSITION not in attribution.without:
        windows = by_lines(attribution.profile.commands.line[positions].tolist(), operations, axis)
    if windows is None and BOUNDARY_STAMPS not in attribution.without:
        clock, times = attribution.clock, attribution.times or attribution.host_times
        of_lines = of_calls = (
            None if clock is not None and clock.is_doubtful else clock
        )  # the order of calls still tells
        if clock is None:
            of_lines, of_calls = attribution.fitted.get(False), attribution.fitted.get(True)
        if times is not None:
            windows = by_stamps(
                positions, operations,
                *stamped_lines(attribution.logs, operations, of_lines, of_calls, attribution.stamp_ns),
                times, slack, host_step_ns=attribution.host_step_ns, late=late,
            )  # fmt: skip
    return windows or everywhere(len(positions), len(operations))


def doubt_begun_again(attribution: Attribution) -> None:
    """Doubt links to calls with which the log begins twice: nothing shows which were this run's."""
    if attribution.clock is not None:
        return
    again, links = begun_again(attribution.operations), attribution.links
    if again:
        links.doubt_operation(
            position
            for position, (index, word) in enumerate(zip(links.operation_of, links.operation_by, strict=True))
            if index in again and word in (NAME_AND_SIZES, ORDER, LAUNCH_LINE)
        )
