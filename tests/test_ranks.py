"""Collectives and the ranks of a job at them: message, transfer, wait, who comes last and by what; one picture."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mio2trace
from mio2trace.align import Alignment, align
from mio2trace.align.processes import Collective as Ran
from mio2trace.align.processes import paired, relate_processes
from mio2trace.analysis import analyse
from mio2trace.answer import report_of
from mio2trace.answer.html import page
from mio2trace.answer.markdown import comment
from mio2trace.answer.text import lines
from mio2trace.answer.text import rank_lines as answer_lines
from mio2trace.dataset import tables_of
from mio2trace.findings.rule import ms
from mio2trace.measures.cost import bandwidth
from mio2trace.model.profile import Clock, Collective, Inputs, Process, Profile, Range
from mio2trace.notes import Notes
from mio2trace.ops.aten import plain
from mio2trace.ops.operation import problem_name
from mio2trace.ranks import COMMUNICATION, HOST, WORK, each_table, groups, meetings, said, straggler, table, totals
from mio2trace.reports import in_unit
from mio2trace.trace import Slice
from tests.commands import invoked, json_of, stderr_of
from tests.conftest import shared_folder
from tests.kineto_files import FIRST_US, Row, aligned, kineto_file, launched, row
from tests.often import present
from tests.records import process_of_a_job

US, MS = 1_000, 1_000_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
LAYERS = ("conv1", "conv2")
HERE, UNKNOWN = Clock("boottime", scope="a"), Clock("opaque")


BROADCAST = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def rank(
    number: int, steps: Sequence[dict[str, Any]], *, meet: Sequence[int], clock: Clock = HERE, ahead: int = 0
) -> Profile:
    """A process that runs two layers a step, then a collective that ends at ``meet`` on all. A step says how long each
    takes, how long the host slept before the collective, and how much earlier it launched it. ``ahead``: what the
    clock shows too much."""
    launches: list[tuple[str, int, int, int, int]] = []
    ranges: list[Range] = []
    now = 10 * MS
    for step, end in zip(steps, meet, strict=True):
        begin = now
        for layer in LAYERS:
            ranges.append(Range("annotation", layer, 0, now - 2 * US, now + 3 * US))
            kernel = BROADCAST if layer in step.get("broadcasts", ()) else f"{layer}_kernel"
            launches.append((kernel, now + 5 * US, now + 5 * US + step[layer], now, now + US))
            now += step[layer] + 20 * US
        slept = step.get("host", 0)
        called = begin + 100 * US + slept - step.get("early", 0)
        launches.append((ALL_REDUCE, now + slept + 5 * US, end, called, called + US))
        now = end + 10 * US
    process = Process(index=0, pid=100 + number, rank=number, label=f"rank {number}")
    return process_of_a_job(launches, process, clock, ranges=ranges, ahead=ahead)


def job(profiles: Sequence[Profile]) -> list[Alignment]:
    clocks = relate_processes(profiles)
    return [
        msgspec.structs.replace(align(profile, (), Notes()), process_clock=clock)
        for profile, clock in zip(profiles, clocks, strict=True)
    ]


MEET = (20 * MS, 30 * MS, 40 * MS)
SLOW = {"conv1": MS, "conv2": 4 * MS}
USUAL = {"conv1": MS, "conv2": MS}


def three(*, clock: Clock = HERE, ahead: int = 0) -> list[Profile]:
    """Rank 1 has a slow conv2 twice, rank 2 a host that sleeps once."""
    return [
        rank(0, [USUAL] * 3, meet=MEET, clock=clock),
        rank(1, [SLOW, SLOW, USUAL], meet=MEET, clock=clock, ahead=ahead),
        rank(2, [USUAL, USUAL, {**USUAL, "host": 2 * MS}], meet=MEET, clock=clock),
    ]


def test_what_explains_little_of_a_ranks_delay_is_not_its_cause() -> None:
    """3 ms of 103: the other 100 ms have no known cause."""
    met = meetings(of_job := job(three()))
    met = [msgspec.structs.replace(met[0], lead_ns=100 * MS, made_late_by="", made_late_ns=0), *met[1:]]
    of = totals(met, of_job)
    assert (of[1].made_late_by, of[1].made_late_ns, of[2].made_late_by) == ("", 0, HOST)
    lines = answer_lines(met, of, ["rank 0", "rank 1", "rank 2"], [""] * 3)
    assert [line for line in lines if "conv2" in line] == []
    assert "cause   not shown by the files: 1 collective" in lines
    assert len([line for line in lines if line.startswith("cause")]) == 1


def test_work_that_is_another_before_each_collective_is_a_cause_together() -> None:
    """Each bucket of gradients follows its own layer: each explains a twentieth, all of them the delay."""
    (one, *_) = meetings(of_job := job(three()))
    met = [msgspec.structs.replace(one, made_late_by=f"conv{number}") for number in range(20)]
    of = totals(met, of_job)
    assert (of[1].made_late_by, of[1].made_late_ns, of[1].late_ns) == (WORK, 60 * MS, 60 * MS)
    lines = answer_lines(met, of, ["rank 0", "rank 1", "rank 2"], [""] * 3)
    assert "cause   all work takes longer: 60.00 ms in 20 collectives" in lines
    host = [msgspec.structs.replace(one, made_late_by=HOST) if number % 2 else one for number, one in enumerate(met)]
    assert totals(host, of_job)[1].made_late_by == HOST
    waited, *work = met
    beside = totals([msgspec.structs.replace(waited, made_late_by=COMMUNICATION), *work], of_job)
    assert (beside[1].made_late_by, beside[1].made_late_ns) == (WORK, 57 * MS)


def test_wait_is_what_a_kernel_takes_longer_than_on_the_rank_that_comes_last() -> None:
    """By hand: the collective of the slow rank is 3 ms shorter, that of the one whose host slept 2 ms."""
    met = meetings(of_job := job(three()))
    assert [(one.last, one.lead_ns, one.skew_ns, one.by) for one in met] == [
        (1, 3 * MS, 3 * MS, "clock"), (1, 3 * MS, 3 * MS, "clock"), (2, 2 * MS, 2 * MS, "clock"),
    ]  # fmt: skip
    assert [one.waits_ns for one in met] == [(3 * MS, 0, 3 * MS), (3 * MS, 0, 3 * MS), (2 * MS, 2 * MS, 0)]
    assert [(one.made_late_by, one.made_late_ns) for one in met] == [
        ("conv2", 3 * MS), ("conv2", 3 * MS), (HOST, 2 * MS),
    ]  # fmt: skip
    of = totals(met, of_job)
    assert [one.wait_ns for one in of] == [8 * MS, 2 * MS, 6 * MS]
    assert [one.times_arrived_last for one in of] == [0, 2, 1]
    assert {one.transfer_ns for one in of} == {sum(one.transfer_ns for one in met)}
    assert all(one.collective_ns == one.transfer_ns + one.wait_ns for one in of)
    assert straggler(of) == 1
    assert (of[1].made_late_by, of[1].made_late_ns, of[1].late_ns) == ("conv2", 6 * MS, 6 * MS)
    assert said(of, ["rank 0", "rank 1", "rank 2"]).startswith(
        "rank 1 is last in 2 of 3 collectives: conv2 takes 6.000 ms longer; ranks wait 16.00 of "
    )
    lines = answered(three())
    assert lines[0] == "rank 1 is last in 2 of 3 collectives; the other ranks wait 6.000 ms for it."
    assert any(line.startswith("cause   conv2 takes longer: 6.000 ms in 2 collectives") for line in lines)
    (slow,) = [line for line in lines if line.startswith("ranks")]
    assert slow.split()[1:3] == ["rank", "1"]
    assert slow.endswith("conv2")
    seconds = [
        msgspec.structs.replace(one, wait_ns=1000 * one.wait_ns, collective_ns=1000 * one.collective_ns) for one in of
    ]
    assert "; ranks wait 16,000 of 63,535 ms (sum" in said(seconds, ["", "", ""])


def test_a_device_that_is_slower_in_all_layers_is_late_by_all_work() -> None:
    """As one with a lower clock: no layer alone explains half of the delay."""
    slow = {layer: USUAL[layer] + 700 * US for layer in LAYERS}
    host = {"host": 400 * US}
    late = [rank(0, [USUAL] * 3, meet=MEET), rank(1, [USUAL] * 3, meet=MEET), rank(2, [slow | host] * 3, meet=MEET)]
    assert {(one.last, one.made_late_by, one.made_late_ns) for one in meetings(job(late))} == {(2, WORK, 1400 * US)}


def test_a_host_that_is_late_at_each_collective_delays_each() -> None:
    """It waits less in each collective than the others do, so its launches are as far apart as theirs."""
    slept = {**USUAL, "host": 2 * MS}
    met = meetings(job([rank(0, [USUAL] * 3, meet=MEET), rank(1, [slept] * 3, meet=MEET)]))
    told = [(one.last, one.made_late_by, one.made_late_ns) for one in met]
    assert told == [(1, "", 0), (1, HOST, 2 * MS), (1, HOST, 2 * MS)]


def test_communication_that_does_not_count_is_no_work_of_its_layer() -> None:
    """A broadcast in conv2's forward takes longer on the rank that waits there for others."""
    waits, usual = ({**step, "broadcasts": ("conv2",)} for step in (SLOW, USUAL))
    met = meetings(job([rank(0, [usual] * 3, meet=MEET), rank(1, [waits] * 3, meet=MEET)]))
    assert {(one.last, one.made_late_by, one.made_late_ns) for one in met} == {(1, COMMUNICATION, 3 * MS)}


def test_communication_that_does_not_count_is_no_part_of_all_work() -> None:
    """The own layer explains 0.3 ms of a delay of 1 ms, the broadcast 0.4, the host 0.3: none of them half."""
    usual = {**USUAL, "broadcasts": ("conv2",)}
    late = {**usual, "conv1": 1300 * US, "conv2": 1400 * US, "host": 300 * US}
    met = meetings(job([rank(0, [usual] * 3, meet=MEET), rank(1, [late] * 3, meet=MEET)]))
    assert {(one.last, one.lead_ns, one.made_late_by) for one in met} == {(1, MS, "")}


def test_a_host_that_is_ahead_delays_nothing() -> None:
    """Both launched before the previous collective ended, one of them 2 ms after the other."""
    early, late = {**USUAL, "early": 5 * MS}, {**USUAL, "early": 5 * MS, "host": 2 * MS}
    met = meetings(job([rank(0, [early] * 3, meet=MEET), rank(1, [late] * 3, meet=MEET)]))
    assert {(one.last, one.lead_ns, one.made_late_by) for one in met} == {(1, 2 * MS, "")}


def test_where_clocks_are_not_known_the_durations_tell_who_came_last() -> None:
    """Only the collectives relate the clocks, and one clock is five minutes ahead: the same, from durations."""
    met = meetings(job(unknown := three(clock=UNKNOWN, ahead=300_000 * MS)))
    assert {one.by for one in met} == {"duration"}
    assert [one and one.shift_ns for one in relate_processes(unknown)] == [0, -300_000 * MS, 0]
    assert [(one.last, one.lead_ns, one.skew_ns, one.made_late_by) for one in met] == [
        (1, 3 * MS, 3 * MS, "conv2"), (1, 3 * MS, 3 * MS, "conv2"), (2, 2 * MS, 2 * MS, HOST),
    ]  # fmt: skip


def test_nobody_comes_last_where_all_come_at_once() -> None:
    of_job = job([rank(0, [USUAL] * 3, meet=MEET), rank(1, [USUAL] * 3, meet=MEET)])
    of = totals(meetings(of_job), of_job)
    assert [(one.times_arrived_last, one.wait_ns, one.made_late_by) for one in of] == [(0, 0, "")] * 2
    assert said(of, ["rank 0", "rank 1"]).endswith("; none keeps the others waiting")
    rows = table(of, [{"rank": 0}, {"rank": 1}]).rows
    assert [row["straggler"] for row in rows] == ["false", "false"]


def test_ranks_that_hardly_wait_have_no_last_one_that_matters() -> None:
    """One of two equal ranks comes last somewhere: 20 us before collectives of 8 ms are no advice."""
    late = {**USUAL, "conv2": MS + 20 * US}
    lines = answered([rank(0, [USUAL] * 3, meet=MEET), rank(1, [late] * 3, meet=MEET)])
    assert lines[0] == "No rank keeps the others waiting."
    assert not any(line.startswith("cause") for line in lines)


def test_streams_may_run_messages_in_another_order_on_each_rank(tmp_path: Path) -> None:
    """A message of one of two groups of the same ranks is matched with the message of its size. The kernel between them
    counts once: it takes too little time to be a cause. Times by hand, in ms."""
    order = [((8, 1.0, 5.0), (1, 2.5, 3.0)), ((1, 1.2, 3.0), (8, 2.0, 5.0))]
    for number, kernels in enumerate(order):
        events: list[dict[str, Any]] = []
        steps = [(size, begin + later, end + later) for later in (0, 10) for size, begin, end in kernels]
        for at, (size, begin, end) in enumerate(steps):
            told = {"Collective name": "allreduce", "In msg nelems": size, "Out msg nelems": size, "dtype": "Float"}
            host = {"ph": "X", "pid": number + 9, "tid": 1, "dur": 9, "args": {"correlation": at, **told}}
            events += [
                {**host, "cat": cat, "name": name, "ts": 20 * at}
                for cat, name in (("cpu_op", "record_param_comms"), ("user_annotation", "nccl:all_reduce"))
            ]
            events.append({**host, "cat": "cuda_runtime", "name": "hipLaunchKernel", "ts": 20 * at + 2, "dur": 1})
            times = {"tid": size, "pid": 0, "ts": 1000 * begin, "dur": 1000 * (end - begin)}
            events.append({**host, "cat": "kernel", "name": "ncclDevKernel_Generic()", **times})
            if at % 2:
                work = {"ph": "X", "cat": "kernel", "name": "between", "pid": 0, "tid": 7, "dur": 400}
                events.append({**work, "ts": 1000 * begin - 500, "args": {"correlation": 90 + at}})
                events.append({**events[-3], "ts": 20 * at - 5, "args": {"correlation": 90 + at}})
        trace = {"schemaVersion": 1, "distributedInfo": {"rank": number, "world_size": 2}, "traceEvents": events}
        (tmp_path / f"{number}.json").write_text(json.dumps(trace))
    rows = json_of("ranks", tmp_path, "--each", "--unit", "ms")
    assert [(row["message_bytes"], row["transfer_ms"], row["lead_ms"], row["last"]) for row in rows] == 2 * [
        (32, 3, 1, "rank 1"), (4, 0.5, 1.3, "rank 0"),
    ]  # fmt: skip
    assert not any(row.get("made_late_by") for row in rows)


def test_ranks_that_send_different_parts_meet_in_their_order() -> None:
    """The parts of an all-gather may be uneven: each rank sends another number of elements."""
    ran = [[Ran("allgather", at, at + 9, at, message=(size, 7, "Float")) for at, size in enumerate(sent)]
           for sent in ((3, 5), (4, 2))]  # fmt: skip
    assert [[one.position for one in met] for met in paired(ran)] == [[0, 0], [1, 1]]


def test_collectives_that_not_all_ranks_ran_are_left_out() -> None:
    """A profile that ends earlier, without iterations that would tell which are the same; and one rank alone."""
    assert meetings(job([rank(0, [USUAL] * 3, meet=MEET), rank(1, [USUAL] * 2, meet=MEET[:2])])) == []
    assert meetings(job([rank(0, [USUAL] * 3, meet=MEET)])) == []
    none = totals([], [])
    assert said(none, []) == table(none, []).empty
    assert {"start_ns", "skew_us"} < {*in_unit(each_table([], []), "us").columns}


def exchanging(profile: Profile, *, early: int = -1) -> Profile:
    """With an all-to-all for each all-reduce; the ``early``-th ends 1 us after it began."""
    made, seen = [], 0
    for one in profile.activities:
        if one.name == ALL_REDUCE:
            end = present(one.start_ns) + US if seen == early else one.end_ns
            one, seen = msgspec.structs.replace(one, name="all_to_all_kernel", end_ns=end), seen + 1
        made.append(one)
    return msgspec.structs.replace(profile, activities=tuple(made))


def test_an_all_to_all_counts_if_it_ended_nowhere_before_it_had_begun_everywhere() -> None:
    """Only clocks that something else relates can show that; rank 0 gets no data from the others in its second."""
    waits = [one.waits_ns for one in meetings(job(three()))]
    assert [one.waits_ns for one in meetings(job([exchanging(one) for one in three()]))] == waits
    _, *others = map(exchanging, three())
    met = meetings(of_job := job([exchanging(three()[0], early=1), *others]))
    assert [one.number for one in met] == [0, 1]
    of = totals(met, of_job)
    second = [[one for one in of.activities if one.name == "all_to_all_kernel"][1] for of in others]
    expected = [(1, (one.end_ns or 0) - (one.start_ns or 0)) for one in second]
    assert [(one.uncounted_kernels, one.uncounted_ns) for one in of] == [(1, US), *expected]
    time = ms(sum(one.uncounted_ns for one in of))
    assert said(of, ["", "", ""]).endswith(f"; 3 other communication kernels ({time}) are not counted")
    assert meetings(job([exchanging(one) for one in three(clock=UNKNOWN)])) == []


def test_all_to_alls_that_not_all_ranks_ran_do_not_hide_the_other_collectives() -> None:
    _, *others = three()
    late = rank(0, [USUAL] * 4, meet=(*MEET, 50 * MS))
    *head, last = late.activities
    more = msgspec.structs.replace(late, activities=(*head, msgspec.structs.replace(last, name="all_to_all_kernel")))
    met = meetings(of_job := job([more, *others]))
    assert [one.which for one in met] == ["allreduce"] * 3
    assert [one.uncounted_kernels for one in totals(met, of_job)] == [1, 0, 0]
    (note,) = [line for line in answered([more, *others]) if "communication" in line]
    assert note.startswith("note    1 other communication kernel (")


def test_iterations_that_all_ranks_ran_whole_are_matched() -> None:
    """Named iterations: the last one of a rank is cut off behind its first collective."""

    def stepped(number: int, count: int) -> Profile:
        made = rank(number, [USUAL] * count, meet=[MS * 10 * (place + 2) for place in range(count)])
        steps = []
        for place in range((count + 1) // 2):
            of = made.activities[6 * place : 6 * place + 6]
            assert of[0].call is not None
            assert of[-1].call is not None
            begin, end = of[0].call.start_ns or 0, of[-1].end_ns or 0
            steps.append(Range("annotation", f"ProfilerStep#{place}", 0, begin - 5 * US, end + 5 * US))
        return msgspec.structs.replace(made, ranges=tuple(sorted((*made.ranges, *steps), key=lambda one: one.start_ns)))

    met = meetings(job([stepped(0, 4), stepped(1, 3)]))
    assert len(met) == 2
    assert len({one.iteration for one in met}) == 1


def grouped(profile: Profile, groups: Sequence[tuple[int, ...]]) -> Profile:
    """With an op around the launch of each collective that states its group."""
    calls = [one.call for one in profile.activities if one.name == ALL_REDUCE]
    ops = [
        Range(
            "operator", "record_param_comms", 0, (of.start_ns or 0) - US, (of.end_ns or 0) + US,
            inputs=Inputs(collective=Collective("allreduce", "float", 1000, 1000, len(group), members=group)),
        )
        for of, group in zip(calls, groups, strict=True)
        if of is not None
    ]  # fmt: skip
    return msgspec.structs.replace(profile, ranges=tuple(sorted((*profile.ranges, *ops), key=lambda one: one.start_ns)))


ALL = (0, 1, 2, 3)


@pytest.mark.parametrize("clock", [HERE, UNKNOWN])
@pytest.mark.parametrize(("given", "counted"), [((0, 1, 2, 3), [ALL]), ((0, 1), [ALL, (0, 1)]), ((0, 3), [ALL])])
def test_other_groups_are_not_matched(given: Sequence[int], counted: Sequence[tuple[int, ...]], clock: Clock) -> None:
    """Two pairs for tensors and two for data: the n-th all-reduces of two ranks may be of two groups."""
    made = []
    for number in given:
        tensors = (0, 1) if number < 2 else (2, 3)
        data = (0, 2) if number % 2 == 0 else (1, 3)
        made.append(grouped(rank(number, [USUAL] * 3, meet=MEET, clock=clock), [ALL, tensors, data]))
    met = meetings(of_job := job(made))
    assert [one.ranks for one in met] == [len(group) for group in counted]
    assert [one.uncounted_kernels for one in totals(met, of_job)] == [3 - len(counted)] * len(given)


@pytest.mark.parametrize("clock", [HERE, UNKNOWN])
def test_collectives_that_no_shift_of_a_clock_makes_meet_are_not_matched(clock: Clock) -> None:
    """The second one of rank 1 ended 4 ms before that of rank 0 began, unlike the others: it is another one."""
    late, early, later = ({**USUAL, "host": slept * US} for slept in (7_900, 3_900, 11_900))
    others = [rank(number, [late] * 3, meet=MEET, clock=clock) for number in (0, 2)]
    met = meetings(
        of_job := job(
            [others[0], rank(1, [late, early, later], meet=(MEET[0], 26 * MS, MEET[2]), clock=clock), others[1]]
        )
    )
    assert len(met) == 2
    assert max(one.skew_ns for one in met) < MS
    assert [one.uncounted_kernels for one in totals(met, of_job)] == [1, 1, 1]


@pytest.mark.parametrize(("stated", "of_group"), [(4, 2), (None, 4)])
def test_ranks_that_are_not_here_are_said(stated: int | None, of_group: int) -> None:
    """The job, or the group of a collective, has more ranks than there are profiles: another may be last."""

    def some(ranks: int | None) -> list[Profile]:
        made = [grouped(one, [tuple(range(of_group))] * 3) for one in three()[:2]]
        return [
            msgspec.structs.replace(one, processes=(msgspec.structs.replace(one.process, ranks=ranks),)) for one in made
        ]

    few = some(stated)
    of = totals(meetings(of_job := job(few)), of_job)
    assert " (sum of 2 of 4 ranks)" in said(of, ["rank 0", "rank 1"])
    told = ", the whole group" if of_group == 2 else ": another may be last, transfers may be shorter"
    assert f"note    2 of 4 ranks are here{told}" in answered(few)
    if stated is not None:
        assert "are here" not in "\n".join(answered(some(2)))


def test_the_groups_of_a_job_without_a_common_one_are_named() -> None:
    """Four ranks, two by two."""
    groups_of = ([(0, 1), (0, 2)], [(0, 1), (1, 3)], [(2, 3), (0, 2)], [(2, 3), (1, 3)])
    ranks = [grouped(rank(at, [USUAL] * 2, meet=MEET[:2]), of) for at, of in enumerate(groups_of)]
    assert meetings(job(ranks)) == []
    assert groups(job(ranks)) == "give the ranks of one group: 0, 1 or 0, 2 or 1, 3 or 2, 3"
    assert not groups(job(ranks[:2]))


RANKS = [shared_folder() / "samples" / "rocm" / f"kineto_mi300_resnet50_ddp4_rank{number}.json.gz" for number in (0, 1)]


def rows_of(path: Path, category: str) -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return sorted((event for event in events if event.get("cat") == category), key=lambda event: event["ts"])


def all_reduces(path: Path) -> list[float]:
    """Durations in us, read by hand: kernels whose launch lies in ``nccl:all_reduce``."""
    around = [(e["ts"], e["ts"] + e["dur"]) for e in rows_of(path, "user_annotation") if e["name"] == "nccl:all_reduce"]
    calls = rows_of(path, "cuda_runtime")
    launches = {e["args"]["correlation"]: e["ts"] for e in calls if "correlation" in e["args"]}
    return [
        e["dur"]
        for e in rows_of(path, "kernel")
        if "ncclDevKernel" in e["name"]
        and any(begin <= launches[e["args"]["correlation"]] <= end for begin, end in around)
    ]


def test_the_cause_has_its_time_whatever_the_length_of_its_name() -> None:
    """Not `DistributedDataParallel backward takes longer: 32.47 ms in 1 ...`."""
    met = meetings(of_job := job(three()))
    long = [
        msgspec.structs.replace(one, made_late_by=f"{'Distributed' * 9}Parallel backward") if one.made_late_by else one
        for one in met
    ]
    labels = [f"rank {number}" for number in range(3)]
    said = answer_lines(long, totals(met, of_job), labels, [""] * 3)
    (cause,) = [line for line in said if line.startswith("cause")]
    assert cause.endswith("backward takes longer: 6.000 ms in 2 collectives")
    assert len(cause) <= 78


@pytest.mark.shared
def test_real_ranks_wait_as_their_files_say(analysed_once: None) -> None:
    """Fifteen all-reduces of ResNet-50 on two of four MI300: transfer and wait from the JSON, read independently."""
    durations = list(map(all_reduces, RANKS))
    transfers = [min(pair) for pair in zip(*durations, strict=True)]
    done = invoked("ranks", *RANKS, "--format", "csv", "--unit", "us")
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [int(row["collectives"]) for row in rows] == [15, 15]
    for cells, of in zip(rows, durations, strict=True):
        assert float(cells["transfer_us"]) == pytest.approx(sum(transfers), abs=0.1)
        assert float(cells["wait_us"]) == pytest.approx(sum(of) - sum(transfers), abs=0.1)
    last = [durations[1][place] < durations[0][place] for place in range(15)]
    # its last step has launches without kernels
    assert "incomplete profiles (file rank1): their missing work" in invoked("ranks", *RANKS).stdout
    assert "\nfile rank1 (PROFILE INCOMPLETE): 45.82 ms" in invoked("report", *RANKS).stdout
    assert [int(row["times_arrived_last"]) for row in rows] == [15 - sum(last), sum(last)]
    assert [row["straggler"] for row in rows] == ["false", "true"]


@pytest.mark.shared
def test_merge_is_one_picture_of_the_ranks(tmp_path: Path) -> None:
    """Each rank's processes in one file; clocks and who is last are said; one rank, or two runs, are refused."""
    out = tmp_path / "job.json.gz"
    said = stderr_of(invoked("merge", *RANKS, "-o", str(out), "--check"), 0)
    assert "15 collectives overlap" in said
    assert "file rank1 is last in 11" in said
    document = json.loads(gzip.decompress(out.read_bytes()))
    clock: dict[str, Any] = document["metadata"]["clock"]["processes"][1]
    assert clock["offset_ns"] == 0 < clock["error_ns"] < 2_000_000  # six broadcasts bound nothing
    names = {e["args"]["name"] for e in document["traceEvents"] if e.get("name") == "process_name"}
    assert {"Host file rank0", "Host file rank1"} <= {name.partition(" (")[0] for name in names}
    before = out.read_bytes()
    alone = invoked("merge", RANKS[0], "-o", str(out))
    assert (alone.exit_code, "one profile; expected those of several processes of a job" in alone.stderr) == (1, True)
    assert invoked("ranks", RANKS[0]).exit_code == 1
    other = str(shared_folder() / "samples" / "rocm" / "kineto_mi300x_resnet_train_ddp.json.gz")
    assert invoked("merge", RANKS[0], other, "-o", str(out)).exit_code == 1
    assert out.read_bytes() == before, "what was there is unchanged"


@pytest.mark.shared
def test_a_job_without_collectives_is_said_to_have_none(analysed_once: None) -> None:
    paths = sorted((shared_folder() / "samples" / "rocm-twins" / "resnet-immediate-2ranks" / "rocpd").glob("4*.gz"))
    done = invoked("ranks", *paths)
    assert done.exit_code == 0
    assert done.stdout.startswith("no collective kernel that all ranks ran")
    assert "no row: no collective kernel that all ranks ran" in invoked("ranks", *paths, "--format", "csv").stderr


def answered(profiles: Sequence[Profile], machines: Sequence[str] = ()) -> list[str]:
    met = meetings(of_job := job(profiles))
    labels = [f"rank {number}" for number in range(len(profiles))]
    return answer_lines(met, totals(met, of_job), labels, machines or [""] * len(profiles))


@pytest.mark.parametrize(
    ("machines", "said"),
    [(("a", "a", "a"), "3 ranks, one machine;"), (("a", "b", "b"), "3 ranks, between 2 machines;"),
     (("a", "", "a"), "3 ranks;")],
)  # fmt: skip
def test_machines_are_named_if_every_profile_states_its_own(machines: Sequence[str], said: str) -> None:
    assert any(line.startswith(said) for line in answered(three(), machines))


def test_the_answer_fits_however_many_ranks_there_are() -> None:
    """At most 20 lines of 78 columns; names of ranks differ; the latest is there."""
    many = [rank(number, [SLOW if number == 63 else USUAL] * 3, meet=MEET) for number in range(64)]
    said = answered(many)
    assert len(said) <= 20
    assert max(map(len, said)) <= 78
    assert "59 more ranks" in "\n".join(said)
    names = [line[8:28] for line in said if "rank" in line[8:13]]
    assert len(set(names)) == len(names) >= 5
    assert said[0].startswith("rank 63 is last in 3 of 3")


@pytest.mark.shared
def test_messages_of_real_ranks_have_the_size_that_their_file_states(analysed_once: None) -> None:
    """Elements by the size of their type, read from the JSON; bus bandwidth by NCCL's formula."""
    kernels = [e for e in rows_of(RANKS[0], "kernel") if e["args"].get("Collective name") == "allreduce"]
    sizes = [4 * e["args"]["In msg nelems"] for e in kernels]
    rows = json_of("ranks", *RANKS, "--each", "--unit", "ns")
    assert {e["args"]["dtype"] for e in kernels} == {"Float"}
    assert [row["message_bytes"] for row in rows] == sizes
    for cells in rows:
        expected = cells["message_bytes"] / cells["transfer_ns"] * 2 * 3 / 4  # of four ranks, two of them recorded
        assert cells["bus_gb_per_s"] == pytest.approx(expected, rel=1e-6)
    answer = invoked("ranks", *RANKS).stdout.splitlines()
    assert len(answer) <= 20
    assert max(map(len, answer)) <= 78
    assert answer[0].startswith("file rank1 is last in 11 of 15 collectives")
    shown = [size for size in set(sizes) if any(f"allreduce {size / 1e6:.1f} MB" in line for line in answer)]
    assert 4 * 2431040 in shown, "most time"
    assert f"{len(set(sizes)) - len(shown)} more sizes" in "\n".join(answer)
    (line,) = [line for line in answer if f"allreduce {4 * 2431040 / 1e6:.1f} MB" in line]
    transfers = [row["transfer_ns"] for row in rows if row["message_bytes"] == 4 * 2431040]
    assert float(line.split()[-5]) == pytest.approx(3 * 4 * 2431040 / sum(transfers) * 2 * 3 / 4, abs=0.05)
    assert any(line.startswith("note    2 of 4 ranks are here") for line in answer)


@pytest.mark.shared
def test_report_and_dataset_have_the_ranks_as_the_command_has_them() -> None:
    """A line, a table in Markdown and on the page, rows of a table: of a job alone."""
    analysis = analyse(RANKS)
    (run,) = analysis.runs
    of = totals(meetings(run.alignments), run.alignments)
    report = report_of(analysis, [run])
    (said,) = [line for line in lines(report) if line.startswith("ranks")]
    assert f"ranks       {report.sections[0].waiting}".startswith(said.removesuffix(" ..."))
    assert [one for _, one in report.sections[0].ranks] == of
    assert not report.sections[1].ranks
    for text in (comment(report), page(report)):
        assert "Ranks at the collectives" in text
        assert f"{of[0].wait_ns / 1e6:,.3f}" in text
    columns = tables_of(run)["ranks"]
    assert columns["wait_ns"].to_list() == [one.wait_ns for one in of]
    assert columns["straggler"].to_list() == [False, True]
    assert set(table(of, [{}, {}]).columns) - {"rank"} == set(columns) - {"run", "rank"}


# -- Collectives of PyTorch's traces: message, type, group, bandwidths, against the raw rows and by hand.


BYTES = {"Float": 4, "BFloat16": 2, "Half": 2, "Long": 8, "Int": 4, "Byte": 1}
SAMPLES = (
    "kineto_mi300_resnet50_ddp4_rank0.json.gz", "kineto_mi300_resnet50_ddp4_rank1.json.gz",
    "kineto_mi300x_resnet_train_ddp.json.gz",
)  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", SAMPLES)
def test_each_collective_of_a_sample_has_its_message_and_bandwidth(name: str) -> None:
    """Kernel by kernel: bytes from the row's elements and type; all-reduce counts 2 (n - 1) / n, broadcast 1."""
    path = shared_folder() / "samples" / "rocm" / name
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    stated = {one["args"]["External id"]: one["args"] for one in events if one.get("name") == "record_param_comms"}
    launches = [one["args"] for one in events if one.get("cat") == "cuda_runtime"]
    of_call = {args.get("correlation"): stated.get(args.get("External id")) for args in launches}
    alignment = present(mio2trace.analyse([path]).run.alignment)
    operations = {one.index: one for one in alignment.links.operations}
    checked: Counter[str] = Counter()
    for position, activity in enumerate(alignment.profile.activities):
        true = of_call.get(activity.correlation)
        if true is None or activity.kind != "kernel":
            continue
        operation = operations[alignment.links.operation_of[position]]
        kind, ranks = true["Collective name"], true["Group size"]
        assert operation.primitive == kind
        assert operation.mode == f"{ranks} ranks, group {true['Process Group Name']}"
        ns = (activity.end_ns or 0) - (activity.start_ns or 0)
        made = present(bandwidth(operation, 1, ns))
        assert made.message_bytes == true["In msg nelems"] * BYTES[true["dtype"]]
        factor = {"allreduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}[kind]
        assert made.bus == pytest.approx(made.message_bytes / ns * factor)
        checked[kind] += 1
    assert checked["allreduce"] >= 6


def collective(name: str, sent: int, received: int, dtype: str = "half", ranks: int = 4) -> Collective:
    return Collective(name, dtype, sent, received, ranks)


@pytest.mark.parametrize(
    ("made", "name", "message", "factor", "least"),
    [
        (
            Collective("allreduce", "bfloat16", 100, 100, 8, 0),
            "AllReduce 100 8 ranks, group 0 bfloat16",
            200,
            1.75,
            400,
        ),
        (collective("allreduce", 9, 9), "AllReduce 9 4 ranks half", 18, 1.5, 36),
        (collective("_allgather_base", 100, 400, "float"), "AllGather 100 -> 400 4 ranks", 1600, 0.75, 2000),
        (collective("_reduce_scatter_base", 400, 100, "float"), "ReduceScatter 400 -> 100 4 ranks", 1600, 0.75, 2000),
        (collective("all_to_allv", 64, 64, ranks=2), "AllToAll 64 2 ranks half", 128, 0.5, 256),
        (collective("broadcast", 9, 9, "float"), "Broadcast 9 4 ranks", 36, 1.0, 36),
        (collective("send", 9, 0, "float", 2), "Send 9 2 ranks", 36, 1.0, 36),
        (collective("send", 9, 9), "Send 9 4 ranks half", 18, 1.0, 18),
        (collective("recv", 9, 9), "Recv 9 4 ranks half", 18, 1.0, 18),
        (collective("recv", 0, 9), "Recv 4 ranks half", 18, 1.0, 18),
        (collective("gather", 9, 36), "Gather 9 -> 36 4 ranks half", 72, 0.75, None),
        (collective("scatter", 36, 9), "Scatter 36 -> 9 4 ranks half", 72, 0.75, None),
        (collective("allreduce_coalesced", 9, 9, "float", 1), "AllReduce 9 1 rank", 36, 0.0, 72),
        (collective("allreduce", 9, 9, ""), "AllReduce 9 4 ranks", None, 1.5, None),
        (collective("barrier", 0, 0, "uint8"), "Barrier 4 ranks uint8", None, None, 0),
        (Collective("allgather", "float", 9, 36), "AllGather 9 -> 36", 144, None, 180),
    ],
)
def test_kinds(made: Collective, name: str, message: int | None, factor: float | None, least: int | None) -> None:
    """By their many names; what is not recorded is not told. PyTorch records the tensor of a rank that only sends or
    only receives as both; of a gather or scatter, what the root has, on every rank."""
    operation = plain("record_param_comms", Inputs(collective=made))
    assert problem_name(operation) == name
    assert operation.problem is not None
    assert (operation.problem.message_bytes(), operation.problem.bus_factor()) == (message, factor)
    assert (operation.flop, operation.bytes_min) == (0, least)
    assert plain("record_param_comms", Inputs(collective=collective("wait", 1, 1))).is_plain


def reducing(name: str = "allreduce", sent: int = 1000, received: int = 1000) -> list[Row]:
    args: dict[str, Any] = {
        "Collective_name": name, "dtype": "BFloat16", "In_msg_nelems": sent, "Out_msg_nelems": received,
        "Group_size": 4, "Process_Group_Name": "7", "Input_Dims": [[[1000]]],
    }  # fmt: skip
    return [
        row("cpu_op", "c10d::allreduce_", 7, 7, FIRST_US, 30, External_id=1),
        row("cpu_op", "record_param_comms", 7, 7, FIRST_US + 5, 20, External_id=2, **args),
        *launched(71, 8, 2, "ncclDevKernel_Generic", pid=7, stream=4, wait=32, External_id=2),
    ]


def test_trace_and_table_have_them(tmp_path: Path) -> None:
    """2000 bytes in 2 us are 1 GB/s, of four ranks 1.5 on the bus."""
    path = kineto_file(tmp_path, reducing())
    result = mio2trace.convert(path, output=tmp_path / "out.json")
    (made,) = [one for one in result.trace.events() if isinstance(one, Slice) and one.category == "operation"]
    args = dict(made.args) | dict(made.shared or {})
    assert (args["message_bytes"], args["algorithm_gb_per_s"], args["bus_gb_per_s"]) == (2000, 1, 1.5)
    (cells, *_) = json_of("ops", path, "--group-by", "problem", "-q")
    assert cells["problem"] == "AllReduce 1000 4 ranks, group 7 bfloat16"
    assert (cells["message_bytes"], cells["bus_gb_per_s"]) == (2000, 1.5)


@pytest.mark.parametrize(
    ("name", "sent", "received", "kind", "bus"),
    [
        ("reduce_scatter_tensor_coalesced", 4000, 1000, "reduce_scatter", 3.0),
        ("allgather_into_tensor_coalesced", 1000, 4000, "allgather", 3.0),
        ("_reduce_scatter_base", 4000, 1000, "reduce_scatter", 3.0),
        ("allreduce_coalesced", 4000, 4000, "allreduce", 6.0),
        ("all_to_allv", 4000, 2000, "alltoall", 3.0),
        ("recv", 4000, 4000, "recv", 4.0),
    ],
)
def test_collectives_of_any_name(name: str, sent: int, received: int, kind: str, bus: float, tmp_path: Path) -> None:
    """8000 bytes in 2 us are 4 GB/s; the longest names have 31 letters."""
    (operation,) = aligned(kineto_file(tmp_path, reducing(name, sent, received))).links.operations
    made = present(bandwidth(operation, 1, 2000))
    assert (operation.primitive, made.message_bytes, made.algorithm, made.bus) == (kind, 8000, 4.0, bus)


@pytest.mark.parametrize("other", ["aten::mm", "c10d::unsized"])
def test_a_row_with_other_operations_has_no_bandwidth(other: str, tmp_path: Path) -> None:
    """Time and calls of the row are of both."""
    more = [
        row("cpu_op", other, 7, 7, FIRST_US + 60, 30, External_id=3, Input_Dims=[[8, 8], [8, 8]]),
        *launched(72, 65, 6, "Cijk_gemm", pid=7, stream=4, wait=32, External_id=3),
    ]
    path = kineto_file(tmp_path, [*reducing(), *more])
    table = invoked("ops", str(path), "--group-by", "phase", "--format", "json", "-q")
    (cells,) = json.loads(table.stdout)
    assert cells["kernel_ns"] == 8000
    assert not {"message_bytes", "algorithm_gb_per_s", "bus_gb_per_s"} & set(cells)
