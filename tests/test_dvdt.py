"""dv/dt profiles in each of their forms: what a call means, and what is left when some are damaged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mio2trace.model.profile import Profile
from mio2trace.notes import UNREADABLE, Notes
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.opencl import dvdt
from mio2trace.readers.opencl.dvdt import BlockDecoder
from tests import rocm_files
from tests.small_runs import Call, Program, as_json, as_text, kinds, plain, read, small

SMALL = as_json(small())
CALLS = len(small())


CUT = {"file cut off: read up to there": 1}
UNREAD = {UNREADABLE: 1}


def told(data: bytes | list[Call], **how: Any) -> tuple[Profile, dict[str, int]]:
    """The profile of an array, and what was noted."""
    notes = Notes()
    return read(data if isinstance(data, bytes) else as_json(data), notes, **how), kinds(notes)


def in_blocks(text: bytes, notes: Notes) -> Profile | None:
    """The profile of a log's blocks of text, where it has one."""
    decoder = BlockDecoder(0, "run.log", ReadOptions(), notes)
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        decoder.feed(number, line)
    return decoder.finish(interleaved=False)


def told_as_text(data: bytes | list[Call]) -> tuple[Profile, dict[str, int]]:
    profile = in_blocks(data if isinstance(data, bytes) else as_text(data), notes := Notes())
    assert profile is not None
    return profile, kinds(notes)


def both(calls: list[Call]) -> list[tuple[Profile, dict[str, int]]]:
    return [told(calls), told_as_text(calls)]


def sample(shared: Path, name: str) -> tuple[Profile, dict[str, int]]:
    notes = Notes()
    profile, *_ = rocm_files.read(shared / "samples" / "dvdt" / name, None, notes)
    return profile, kinds(notes)


def with_call(index: int, **fields: Any) -> list[Call]:
    """The small run with fields of one call changed; ``...`` takes a field away."""
    calls = small()
    calls[index] = {key: value for key, value in (calls[index] | fields).items() if value is not ...}
    return calls


ENQUEUE = next(i for i, call in enumerate(small()) if call["call"] == "clEnqueueNDRangeKernel")


# -- what calls mean --------------------------------------------------------------------------------------------------


def test_an_enqueue_has_its_names_sizes_times_and_arguments() -> None:
    profile = read(SMALL)
    first, second, *copies = profile.activities
    assert (first.number, first.kind, first.name, first.opencl.program) == (ENQUEUE, "kernel", "k", 0)
    assert (first.opencl.offset, first.grid, first.workgroup) == ((0, 0, 0), (64, 2, 1), (8, 1, 1))
    assert first.opencl.arguments == ("5000000000000000", "2c010000")
    calls = small()
    counters = calls[ENQUEUE]["profiling"]
    assert (first.queued_ns, first.submit_ns, first.start_ns, first.end_ns) == tuple(counters.values())
    assert first.host_end_ns is not None
    assert first.host_start_ns is not None
    assert first.host_end_ns - first.host_start_ns == 50_000
    assert first.host_start_ns == 1_795_168_800_000_000_000 + int(calls[ENQUEUE]["timestamp"]["start"][20:]) * 1000
    assert second.workgroup is None, "the runtime chose"
    assert [(copy.kind, copy.size_bytes, copy.route, copy.call and copy.call.name) for copy in copies] == [
        ("copy", 4096, "host to device", "clEnqueueWriteBuffer"),
        ("copy", 4096, "device to host", "clEnqueueReadBuffer"),
    ]
    assert profile.records == CALLS
    assert [(buffer.handle, buffer.size_bytes) for buffer in profile.opencl.buffers] == [("0x50", 4096)]
    assert [(program.handle, program.options) for program in profile.opencl.programs] == [("0x40", "-DX=1")]
    assert [call.name for call in profile.other_calls] == ["clBuildProgram"]


def test_arguments_stay_in_force_until_set_again() -> None:
    """Per kernel handle; what was not set again is that of before."""
    first, second, *_ = read(SMALL).activities
    assert second.opencl.arguments == ("5000000000000000", "2d010000")
    assert first.opencl.arguments[0] is second.opencl.arguments[0]


def test_a_kernel_made_again_at_the_same_handle_starts_without_arguments() -> None:
    """Handles are recycled and releases are not seen."""
    run = Program()
    for handle in ("0x40", "0x41"):
        run.program(handle=handle)
        run.kernel("k", "0x60", handle)
        run.enqueue("k", "0x60")
        run.argument("0x60", 1, "01000000")
    profile = read(as_json(run.calls))
    assert [enqueue.opencl.arguments for enqueue in profile.activities] == [(), ()]
    assert [enqueue.opencl.program for enqueue in profile.activities] == [0, 1]


def test_an_argument_whose_setting_failed_is_not_in_force() -> None:
    """The one before it is; the call counts, and the report says it."""
    run = Program()
    run.kernel("k", "0x60")
    run.argument("0x60", 0, "01000000")
    run.argument("0x60", 0, "02000000", errcode=-50)
    run.argument("0x60", 1, "03000000", errcode=-1)  # not known
    run.enqueue("k", "0x60")
    for profile, notes in both(run.calls):
        assert profile.activities[0].opencl.arguments == ("01000000", "03000000")
        assert profile.records == len(run.calls)
        assert notes == {"clSetKernelArg that failed: without effect": 1}


def test_timer_marks_are_the_zeros_of_a_kernel_that_never_runs() -> None:
    """Of several such handles the one with most; an enqueued kernel has none."""
    run = Program()
    for _ in range(3):
        run.mark()
    run.argument("0x67", 0, "00000000")
    run.argument("0x67", 0, "00000000")
    run.kernel("k", "0x60")
    for _ in range(4):
        run.argument("0x60", 0, "00000000")
    run.enqueue("k", "0x60")
    assert [mark.number for mark in read(as_json(run.calls)).opencl.marks] == [1, 2, 3]


@pytest.mark.parametrize(
    ("errcode", "handle", "is_there"),
    [
        (0, "0x50", True),
        (-1, "0x50", True),
        (-61, "0", False),
        (-1, "0", False),
        (-1, "(nil)", False),
        (-61, "0x50", False),
    ],
)
def test_a_buffer_that_could_not_be_created_is_none(errcode: int, handle: str, is_there: bool) -> None:
    """It must not count as memory. -1 alone says that the program gave no place for an error."""
    run = Program()
    run.buffer(errcode=errcode, handle=handle)
    for profile, notes in both(run.calls):
        assert len(profile.opencl.buffers) == is_there
        assert notes == ({} if is_there else {"buffer that could not be created": 1})


def test_a_number_of_kernels_that_nobody_asked_for_is_unknown() -> None:
    """4294967295 stands for a NULL pointer."""
    run = Program()
    run.program()
    common: dict[str, Any] = {"program": "0x40", "num_kernels": 0, "kernels": "0", "num_kernels_ret_ptr": "0"}
    run.event("clCreateKernelsInProgram", **common, num_kernels_ret=3)
    run.program(handle="0x41")
    run.event("clCreateKernelsInProgram", **(common | {"program": "0x41"}), num_kernels_ret=4294967295)
    assert [program.kernels for program in read(as_json(run.calls)).opencl.programs] == [3, None]


# -- times ------------------------------------------------------------------------------------------------------------


FRACTIONS = {".553314": 553_314_000, "": 0, ".5": 500_000_000}
DATE = "2018-02-09T10:36:48"


@pytest.mark.parametrize(
    ("text", "ns", "said"),
    [
        *((f"{DATE}{more}", 1_518_172_608_000_000_000 + ns, 0) for more, ns in FRACTIONS.items()),
        *((text, None, 0) for text in ("1970-01-01 00:00:00.000", "")),
        *(
            (text, None, 2)
            for text in ("yesterday", f"{DATE}.55x314", "99999-01-01T00:00:00", "2018-02-09T10:36+01:0.5")
        ),
        *((f"2018-{of}:36:48.553314", None, 2) for of in ("13-09T10", "W05-3T10", "02-09 10")),
    ],
)
def test_host_times_are_unix_time_in_ns(text: str, ns: int | None, said: int) -> None:
    """A fraction may be missing; the constant of the test build is no time; other forms are counted."""
    profile, notes = told(with_call(ENQUEUE, timestamp={"start": text, "end": text}))
    assert profile.activities[0].host_start_ns == ns
    assert notes == ({"host time that is not of the form 2018-02-09T10:36:48.553314": said} if said else {})


@pytest.mark.parametrize("timestamp", [..., None, {}, {"start": "2018-02-09T10:36:48"}])
def test_host_times_may_be_missing(timestamp: Any) -> None:
    profile, notes = told(with_call(ENQUEUE, timestamp=timestamp))
    assert profile.activities[0].host_end_ns is None
    assert profile.activities[0].name == "k"
    assert notes == {}


def test_counters_may_be_printed_as_exponents() -> None:
    """As newer cJSON does; they are integers all the same."""
    profiling = '{"queued":1.7e+18,"submit":1.7000000001e+18,"start":1.7000000001234568e+18,"end":1700000000200000000}'
    text = as_json(with_call(ENQUEUE, profiling="HERE")).replace(b'"HERE"', profiling.encode())
    enqueue = read(text).activities[0]
    times = (enqueue.queued_ns, enqueue.submit_ns, enqueue.start_ns, enqueue.end_ns)
    assert times == (17 * 10**17, 1_700_000_000_100_000_000, int(1.7000000001234568e18), 1_700_000_000_200_000_000)
    assert {type(time) for time in times} == {int}


GOOD = {"queued": 10, "submit": 20, "start": 30, "end": 40}
ODD: list[Call] = [{"queued": -1}, {"queued": "-inf"}, *({"end": end} for end in (29, 1 << 63, 10**30, "nan"))]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"profiling": ...}, "without device times"),
        ({"profiling": GOOD, "output profiling_error": -7}, "whose device times the profiler could not read"),
        ({"profiling": {"queued": 10, "submit": 20, "start": 30}}, "with incomplete device times"),
        *(({"profiling": {**GOOD, **odd}}, "whose device times are out of order") for odd in ODD),
        ({"profiling": GOOD, "errcode": -54}, "that failed: not drawn"),
    ],
)
def test_error_an_enqueue_without_good_device_times_is_kept_without_them(fields: dict[str, Any], said: str) -> None:
    """It ran, or did not; nothing is made up, and it is counted."""
    profile, notes = told(with_call(ENQUEUE, **fields))
    first = profile.activities[0]
    assert (first.queued_ns, first.submit_ns, first.start_ns, first.end_ns) == (None,) * 4
    assert first.host_start_ns is not None
    assert notes == {f"enqueue {said}": 1}
    assert len(profile.activities) == 4


@pytest.mark.parametrize("size", [-1, 1 << 63, 10**40])
def test_error_a_size_that_cannot_be_is_counted(size: int) -> None:
    index = next(i for i, call in enumerate(small()) if call["call"] == "clEnqueueWriteBuffer")
    profile, notes = told(with_call(index, size=size))
    assert profile.activities[2].size_bytes == 0
    assert notes == {"size in bytes that cannot be": 1}


# -- the array, however it is laid out and cut ------------------------------------------------------------------------


BACKWARDS = [dict(sorted(call.items(), reverse=True)) for call in small()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (as_json(small(), indent=None), {}),
        (as_json(small(), indent=1), {}),
        (as_json(small(), indent=4).replace(b"\n", b"\r\n"), {}),
        (b" \n" + json.dumps(BACKWARDS, indent=1).encode() + b"\n\n", {}),
        (json.dumps([{**call, "call_index": i} for i, call in enumerate(small())], sort_keys=True).encode(), {}),
        # other programs write integers with a fraction of zero
        (SMALL.replace(b'"arg_index":\t1,', b'"arg_index":\t1.0,'), {}),
        (SMALL.replace(b"\t64,", b"\t6.4e1,"), {}),
        (SMALL + b"\nbye", {"bytes after the end of the profile ignored": 1}),
    ],
)
def test_the_layout_of_the_array_does_not_matter(text: bytes, said: dict[str, int]) -> None:
    """Tabs, blanks, no white space at all, any order of keys, more keys, forms of numbers, what follows."""
    assert text != SMALL
    profile, notes = told(text)
    assert (plain(profile), notes) == (plain(read(SMALL)), said)
    assert dvdt.sniff(text)


@given(st.integers(1, 3000))
@settings(deadline=None, max_examples=60)
def test_the_profile_does_not_depend_on_the_blocks(size: int) -> None:
    """However small; calls may be longer than a block."""
    assert told(SMALL, block=size) == (read(SMALL), {})


@pytest.mark.parametrize("text", [SMALL, as_json(small(), indent=None)], ids=["tabs", "compact"])
@pytest.mark.parametrize("size", [1 << 18, 97])
def test_a_cut_array_gives_all_its_whole_calls_and_says_that_it_is_cut(text: bytes, size: int) -> None:
    """At any byte: the calls whose last bracket is there, no others, one note; a whole array has none."""
    ends, decoded = [], text.decode()
    at = 1
    while decoded[at:].lstrip()[0] != "]":
        at += len(decoded[at:]) - len(decoded[at:].lstrip(", \t\n"))
        ends.append(at := json.JSONDecoder().raw_decode(decoded, at)[1])
    whole = read(text)
    for cut in {*range(1, 40), *range(40, len(text), 13), *(end + by for end in ends for by in (-1, 0, 1))}:
        profile, notes = told(text[:cut], block=size)
        assert profile.records == sum(end <= cut for end in ends), cut
        assert profile.activities == tuple(e for e in whole.activities if e.number < profile.records)
        if decoded[cut - 1 :].strip() not in ("", "]"):
            assert notes == CUT, cut
    assert (whole.records, told(text)[1]) == (len(ends), {})


def test_a_program_source_may_hold_anything() -> None:
    """Also what looks like the border of two calls, like the end of the array, or like the profiler's lines."""
    run = Program()
    run.program('}, {"call": "clSetKernelArg"}, {\n]\n[dv/dt] >>\n[dv/dt] clSetKernelArg\\"}, {"x": 1')
    run.enqueue("k", "0x60")
    for size in (1 << 18, 5, 64):
        profile, notes = told(run.calls, block=size)
        assert (profile.records, len(profile.activities), notes) == (4, 1, {})


def test_a_source_longer_than_the_head_is_recognised() -> None:
    run = Program()
    run.program("x" * 100_000)
    calls = run.calls[1:]
    assert dvdt.sniff(as_json([{"source": calls[0]["source"], **calls[0]}, *calls[1:]])[:65536])


def test_an_empty_array_is_a_profile_without_calls() -> None:
    """Child processes of the compiler print such."""
    for text in (b"[]", b" [ \n ]\n", b"[\n\n]"):
        profile, notes = told(text)
        assert (profile.records, notes) == (0, {})


# -- damage -----------------------------------------------------------------------------------------------------------


BROKEN = [{"gws": "64"}, {"gws": [1.5, 1, 1]}, {"name": 7}, {"profiling": []}, {"timestamp": "now"}]


@pytest.mark.parametrize("fields", [*BROKEN, {"call": ...}, {"call": 5}, {"call": "clEnqueueTask"}])
@pytest.mark.parametrize("host_calls", [False, True])
def test_error_one_call_of_wrong_types_is_lost_alone(fields: dict[str, Any], host_calls: bool) -> None:
    profile, notes = told(with_call(ENQUEUE, **fields), host_calls=host_calls)
    assert [e.number for e in profile.activities] == [e.number for e in read(SMALL).activities[1:]]
    assert profile.records == CALLS
    assert notes == ({"profiled call of an unknown kind": 1} if fields.get("call") == "clEnqueueTask" else UNREAD)


def test_error_an_argument_that_cannot_be_read_is_unknown_not_the_one_before() -> None:
    """A stale size would name a GEMM that did not run. Other kernels are not concerned."""
    run = Program()
    for kernel in ("0x60", "0x61"):
        run.kernel("k", kernel)
        run.argument(kernel, 0, "01000000")
        run.argument(kernel, 1, "02000000")
    lost = run.argument("0x60", 0, "05000000")
    lost["arg_index"] = "first"
    run.argument("0x60", 1, "06000000")
    run.enqueue("k", "0x60")
    run.enqueue("k", "0x61")
    for profile, notes in both(run.calls):
        assert [e.opencl.arguments for e in profile.activities] == [("", "06000000"), ("01000000", "02000000")]
        assert notes == UNREAD


def test_error_damaged_json_loses_the_calls_that_it_concerns() -> None:
    """The others stay; arguments that may have been set there are unknown from then on."""
    head, tail = SMALL[: SMALL.index(b'"2d010000"')], SMALL[SMALL.index(b'"2d010000"') :]
    at = head.rindex(b'"arg_index":\t1')
    for damage in (b'"arg_index":\tNaN', b'"arg_index":\t', b'"arg_index" 1', b'"arg_index:\t1'):
        profile, notes = told(head[:at] + damage + head[at + 14 :] + tail)
        assert [e.number for e in profile.activities] == [e.number for e in read(SMALL).activities], damage
        assert [e.opencl.arguments for e in profile.activities[:2]] == [("5000000000000000", "2c010000"), ("", "")]
        assert profile.records == CALLS
        assert notes == {"damaged JSON in the profile: a call is lost, calls after it may be miscounted": 1}


# -- text blocks ------------------------------------------------------------------------------------------------------


def test_text_and_json_are_one_profile() -> None:
    """But for the lines, and the text of programs, which is evidence only."""
    (from_json, _), (from_text, notes) = both(small())
    assert plain(from_text) == plain(from_json)
    assert notes == {}
    assert from_text.activities[0].line == as_text(small()).splitlines().index(b"[dv/dt] clEnqueueNDRangeKernel") + 1
    assert b"clX" in from_text.opencl.programs[0].source


def test_options_keep_all_of_their_line() -> None:
    run = Program()
    run.program(options='-cl-std=CL1.1 -DA="x y"')
    run.program(handle="0x41", options="")
    options = [program.options for program in told_as_text(run.calls)[0].opencl.programs]
    assert options == ['-cl-std=CL1.1 -DA="x y"', ""]


def test_text_cut_anywhere_is_a_prefix_and_says_so(tmp_path: Path) -> None:
    """A number at the cut may have lost digits: it is not used. Cut between two blocks it cannot be seen."""
    text = as_text(small())
    whole, _ = told_as_text(text)
    for cut in range(60, len(text), 17):
        (profile,), notes = rocm_files.read_made(tmp_path, text[:cut])
        complete = [e for e in whole.activities if e.number < profile.records - 1]
        assert list(profile.activities[: len(complete)]) == complete
        for enqueue, real in zip(profile.activities, whole.activities, strict=False):
            assert enqueue.grid in (real.grid, None)
            assert enqueue.end_ns in (real.end_ns, None)
        block = text[max(text[:cut].rfind(b"\n\n[dv"), 0) : cut].strip()
        if b"[dv/dt] cl" in block and b" errcode " not in block:
            assert CUT.items() <= notes.items(), cut


def test_error_a_block_cut_by_the_next_is_counted() -> None:
    """A process that died is followed by another."""
    profile, notes = told_as_text(as_text(small()).replace(b"[dv/dt] clEnqueueNDRangeKernel errcode 0\n", b"", 1))
    assert profile.records == CALLS
    assert notes == {"dv/dt block cut off": 1}


def test_error_fields_before_the_first_block_belong_to_none() -> None:
    tail = b"[dv/dt] clCreateCommandQueue device 0x99\n[dv/dt] clSetKernelArg kernel 0x1\n"
    profile, notes = told_as_text(tail + as_text(small()))
    assert plain(profile) == plain(told_as_text(small())[0])
    assert notes == {"dv/dt line outside its block: skipped": 2}


@pytest.mark.parametrize("value", [b"1 2 3 4 5", b"1 2", b"a b c d", b""])
def test_error_a_field_of_too_many_or_no_numbers_loses_one_call(value: bytes) -> None:
    text = re.sub(rb"(?<=clEnqueueNDRangeKernel profiling )[^\n]*", value, as_text(small()), count=1)
    profile, notes = told_as_text(text)
    assert (len(profile.activities), profile.records, notes) == (3, CALLS, UNREAD)


# -- real samples -----------------------------------------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize("name", ["two-queues", "clblast-lenet-seq-x3", "clblast-gemm-direct"])
def test_two_runs_of_one_program_agree_in_both_forms(shared: Path, name: str) -> None:
    """All but times, handles and the arguments that are handles."""
    (text,) = (shared / "samples" / "dvdt").glob(f"{name}.*.log")
    one, other = (sample(shared, file)[0] for file in (f"{name}.prof.json", text.name))

    def shape(profile: Profile) -> Any:
        return [
            profile.records,
            [(q.index, q.device) for q in profile.queues],
            [(p.index, p.options, p.kernels) for p in profile.opencl.programs],
            [(b.number, b.size_bytes) for b in profile.opencl.buffers],
            [(e.number, e.kind, e.name, e.queue, e.grid, e.workgroup, e.size_bytes) for e in profile.activities],
            [
                (of.offset, of.program, [value if len(value) == 8 else len(value) for value in of.arguments])
                for of in (e.opencl for e in profile.activities)
            ],
        ]

    assert shape(one) == shape(other)
    assert len(one.activities) > 3


@pytest.mark.shared
def test_arguments_that_are_partly_set_again_are_followed(shared: Path) -> None:
    calls = json.loads((shared / "samples" / "dvdt" / "two-queues.prof.json").read_bytes())
    force: dict[str, dict[int, str]] = {}
    expected = []
    for call in calls:
        if call["call"] == "clCreateKernel":
            force[call["kernel"]] = {}
        elif call["call"] == "clSetKernelArg":
            force[call["kernel"]][call["arg_index"]] = call["arg_value"]
        elif call["call"] == "clEnqueueNDRangeKernel":
            expected.append(dict(force[call["kernel"]]))
    profile, _ = sample(shared, "two-queues.prof.json")
    assert [dict(enumerate(e.opencl.arguments)) for e in profile.activities if e.kind == "kernel"] == expected
    assert len(set(map(str, expected))) > 1


@pytest.mark.shared
def test_the_published_sample_has_its_hundred_kernels(shared: Path) -> None:
    """Written by Python 2, in any order of keys."""
    profile, notes = sample(shared, "acl-sample.json")
    counts = [len(of) for of in (profile.activities, profile.opencl.buffers, profile.opencl.programs)]
    assert (profile.records, *counts) == (2736, 100, 226, 18)
    assert profile.activities[0].number == 457
    assert sum((e.end_ns or 0) - (e.start_ns or 0) for e in profile.activities) // 100_000 == 386
    assert sum(e.workgroup is None for e in profile.activities) == 74
    assert notes == {}


@pytest.mark.shared
def test_a_profile_of_the_offline_parser_is_recognised_by_its_defects(shared: Path) -> None:
    """Its pointers are cut, so that is said, and only arguments set since the last enqueue are believed."""
    profile, notes = sample(shared, "offline-parser.prof.json")
    assert len(profile.activities) == 24
    assert notes == {"profile made by dv/dt's offline parser: pointers are cut, joined by order": 1}
    assert all(buffer.handle for buffer in profile.opencl.buffers)


@pytest.mark.shared
def test_a_profile_without_a_wall_clock_has_no_host_times(shared: Path) -> None:
    """The test build prints a constant."""
    profile, notes = sample(shared, "wallclock-timeofday.prof.json")
    assert {e.host_start_ns for e in profile.activities} == {None}
    assert None not in {e.start_ns for e in profile.activities}
    assert notes == {}


@pytest.mark.shared
def test_error_the_log_of_a_run_that_crashed_ends_in_a_cut_block(shared: Path) -> None:
    profile, notes = sample(shared, "crash-local-arg.stdout.log")
    assert profile.records > 10
    assert CUT.items() <= notes.items()


def test_the_decoded_calls_have_the_fields_of_the_format() -> None:
    """A name that is misspelt here would silently be a default."""
    for union in (dvdt._CALLS, dvdt._TIMED_CALLS):
        for call, real in zip(union.decode(SMALL), small(), strict=True):
            names = {field.encode_name for field in msgspec.structs.fields(call)}
            assert names <= {*real, "output profiling_error", "queue", "source"}, type(call)


def test_an_array_that_does_not_begin_with_a_call_is_still_a_profile() -> None:
    """A number or two that slipped in are counted; the calls behind them are read."""
    odd = SMALL.replace(b"[", b"[ 2, null,", 1)
    assert dvdt.sniff(odd[:65536])
    profile, notes = told(odd)
    assert (len(profile.activities), [*notes.values()]) == (4, [2])


def test_what_is_no_name_of_a_call_is_not_quoted() -> None:
    """Cut off in its middle, a secret would be told from nothing else."""
    notes = Notes()
    secret = "123456789:" + 10 * "AAH"
    read(as_json([{**small()[0], "call": secret}, *small()]), notes)
    told = [place for note in notes for place in note.places]
    assert any("a name that is no function's" in place for place in told)
    assert not any("AAH" in place for place in told)
