"""One file with all that a run printed: each line goes to who knows it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace import analyse
from mio2trace.answer import of_logs
from mio2trace.conversion import convert
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.readers import run_log
from mio2trace.readers.base import ReadOptions, Records
from tests.rocm_files import records_of
from tests.small_runs import Program, as_json, as_text, benchmark, kinds, plain, read, small

CALLS, LOG = benchmark()
BLOCK = b"[dv/dt] <<\n" + as_json(small()) + b"\n[dv/dt] >>\n"
EMPTIED = "empty dv/dt block of a child process: skipped"
EMPTY = b"[dv/dt] <<\n[]\n[dv/dt] >>\n"


def read_text(folder: Path, text: bytes, notes: Notes | None = None) -> Records:
    path = folder / "anything"
    path.write_bytes(text)
    return records_of(path, run_log, notes)


def the_profile(records: Records) -> Profile:
    (found,) = [record for record in records if isinstance(record, Profile)]
    return found


def the_log(records: Records) -> FrameworkLog:
    (found,) = [record for record in records if isinstance(record, FrameworkLog)]
    return found


def check(records: Records) -> None:
    """They are the small profile and the log of the benchmark."""
    assert plain(the_profile(records)) == plain(read(as_json(small())))
    assert the_log(records).events[0].kind == "forward begins"
    assert len(the_log(records).layers) == 4


def test_array_blocks_are_taken_one_by_one(tmp_path: Path) -> None:
    """Every process that runs with the profiler prints one; those without a call are counted only."""
    notes = Notes()
    records = read_text(tmp_path, b"hello\n" + EMPTY * 3 + BLOCK + EMPTY + LOG.encode(), notes)
    check(records)
    assert kinds(notes) == {EMPTIED: 4, "line of other programs: skipped": 1}
    assert not notes.problems


def test_what_is_glued_to_a_marker_is_not_lost(tmp_path: Path) -> None:
    first, _, rest = LOG.partition("\n")
    for opened in (b"[dv/dt] <<\n", b"[dv/dt] << "):
        for closed in (b"\n[dv/dt] >>", b"[dv/dt] >>"):
            text = first.encode() + opened + as_json(small()) + closed + EMPTY + rest.encode()
            check(read_text(tmp_path, text, notes := Notes()))
            assert kinds(notes) == {EMPTIED: 1}


def test_a_block_that_is_not_closed_is_read_and_said_to_be_cut(tmp_path: Path) -> None:
    """The file was copied while the program ran, or the disk was full."""
    notes = Notes()
    records = read_text(tmp_path, BLOCK[: BLOCK.index(b'"clEnqueueReadBuffer"')], notes)
    assert the_profile(records).records == len(small()) - 1
    assert list(kinds(notes)) == ["file cut off: read up to there"]


def test_text_blocks_among_log_lines_share_their_order(tmp_path: Path) -> None:
    """Lines count from 1, so that one place can be compared with the other."""
    lines = LOG.splitlines(keepends=True)
    text = lines[0].encode() + as_text(small()) + "".join(lines[1:]).encode()
    records = read_text(tmp_path, text)
    profile = the_profile(records)
    assert profile.interleaved
    for enqueue in profile.activities:
        assert text.splitlines()[enqueue.line - 1] in {
            b"[dv/dt] clEnqueueNDRangeKernel", b"[dv/dt] clEnqueueReadBuffer", b"[dv/dt] clEnqueueWriteBuffer",
        }  # fmt: skip
    assert the_log(records).events[0].line == 1
    assert the_log(records).events[1].line > max(enqueue.line for enqueue in profile.activities)


def test_lines_of_a_program_source_are_no_lines_of_the_log(tmp_path: Path) -> None:
    """Whatever they look like; that there are such is said."""
    run = Program()
    run.program(LOG + "[dv/dt] clEnqueueNDRangeKernel\n[dv/dt] << \n[dv/dt] clCreateProgramWithSource sources[1] >>\n")
    run.enqueue("k", "0x60")
    notes = Notes()
    records = read_text(tmp_path, as_text(run.calls), notes)
    assert len(records) == 1
    assert the_profile(records).records == 4
    assert not the_profile(records).interleaved
    assert list(kinds(notes)) == ["line like one of the log inside a program's source: skipped"]


def buffered(size: int, stdout: bytes, lines: list[bytes]) -> bytes:
    """Standard output in blocks of ``size``, each with some lines of standard error behind it."""
    blocks = [stdout[at : at + size] for at in range(0, len(stdout), size)]
    share = -(-len(lines) // len(blocks))
    return b"".join(block + b"".join(lines[n * share : (n + 1) * share]) for n, block in enumerate(blocks))


@given(st.integers(200, 5000))
def test_a_line_that_another_stream_cut_in_two_is_put_together(size: int) -> None:
    run = Program()
    run.kernel("k", "0x60")
    for number in range(12):
        run.argument("0x60", 0, f"{number:02x}000000")
        run.enqueue("k", "0x60")
    stdout, notes = as_text(run.calls), Notes()
    text = buffered(size, stdout, LOG.encode().splitlines(keepends=True))
    log = run_log._Log(_NoSource(), ReadOptions(), notes)  # type: ignore[arg-type]
    numbered = run_log._Numbered(iter(text.splitlines(keepends=True)), Notes())
    for line in numbered:
        log.feed(line, numbered)
    records = log.finish(numbered.number)
    assert plain(the_profile(records)) == plain(read(as_json(run.calls)))
    assert len(the_log(records).layers) == 4
    assert [e.kind for e in the_log(records).events] == [
        "forward begins", "forward ends", "benchmark begins", "testing", "iteration", "average begins",
        "average forward", "benchmark ends",
    ]  # fmt: skip
    cut = any(not stdout[:at].endswith(b"\n") for at in range(size, len(stdout), size))
    assert the_profile(records).interleaved == (not cut)
    assert not notes.problems


class _NoSource:
    index = 0
    name = "run.log"


@pytest.mark.parametrize(
    "text",
    [
        LOG.encode(),
        b"[1,0]<stderr>:" + LOG.encode().replace(b"\n", b"\n[1,0]<stderr>:"),
        b"[ 12%] Building\n[2026-11-20 10:00:00] start\n" + LOG.encode(),
        b"\0\0\0\n" + LOG.encode(),
        b"{ starting }\n" + LOG.encode(),
        LOG.encode().replace(b"\n", b"\r\n"),
        LOG.encode("utf-16"),
        gzip.compress(LOG.encode(), mtime=0),
    ],
    ids=["plain", "ranks of MPI", "brackets", "a few NULs", "a brace", "returns", "UTF-16", "gzip"],
)
def test_a_log_is_recognised_behind_whatever_begins_it(tmp_path: Path, text: bytes) -> None:
    """By content; other programs may have printed first."""
    assert len(the_log(read_text(tmp_path, text)).layers) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", r"empty; expected a log or a profile$"),
        (b" \n\t\n", r"empty; expected a log or a profile$"),
        (b"nothing\nof use\n", r"none of its 2 lines is known; expected a log of MIOpen or Caffe \("),
        (b"nothing\n", r"its only line is not known; expected a log of MIOpen or Caffe \("),
        (
            b"found 14 instances\nPerf:    1.16896 ms, 110.229 TFlops, 83.4 GB/s, DeviceGemmXdl<256>\n",
            r"is what a benchmark of Composable Kernel printed \(ckProfiler\); expected a profile",
        ),
        (
            b"Running [ MIGraphX Version: 2.12.0 ]: migraphx-driver perf a.onnx\n@0 = hip::sync: 0.1ms, 1%\n",
            r"is what `migraphx-driver` printed; expected MIOpen's log",
        ),
        (
            b"|--|--|\n|              LABEL              | COUNT | DEPTH |   METRIC   | UNITS |\n",
            r"is a table of rocprof-sys .*; expected its database",
        ),
        (b"Summary:\ngpu::gemm: 139.9ms / 73 = 1.9ms, 72%\n", r"is what `migraphx-driver` printed;"),
        (
            b"-----  -----\n       Name    Self CPU %      Self CPU   CPU total %\n-----  -----\n aten::mm   0.03%\n",
            r"is a table of sums that PyTorch's profiler printed; expected its trace",
        ),
        (b"| Name | Self CPU total % | Self CPU total |\n| - | - | - |\n", r"is a table of sums that "),
        (
            b":3:hip_module.cpp           :669 : 4815821610375 us: [pid:2 tid:0x7]  hipLaunchKernel ( 0x7 ) \n",
            r"is HIP's log of its calls \(AMD_LOG_LEVEL\); expected a profile",
        ),
        (
            b"650321:650322 1:1 x\n6503210078040033:6503210079483188 2:0 CopyDeviceToHost:48:35331\n",
            r"is what roctracer printed for rocprof; expected a profile",
        ),
        *(
            (table, r"is a table of rocprof, but not as it wrote it; expected the names of the columns in")
            for table in (
                b'```\n"Kind","Start_Timestamp","End_Timestamp"\n"KERNEL_DISPATCH",1,2\n```\n',
                b'"KERNEL_DISPATCH","Agent 2",1,0\n',
                b"| Index | KernelName | BeginNs | EndNs |\n| - | - | - | - |\n",
                b"Kind;Start_Timestamp;End_Timestamp\nKERNEL_DISPATCH;1;2\n",
            )
        ),
        (b"Dispatch_ID(0), GPU_ID(2), Queue_ID(2)\n", r"is what rocprofv2 printed; expected a profile"),
        (b"ROCPROFV3 KERNEL_DISPATCH SUMMARY:\n| NAME | DOMAIN |\n", r"is a table of sums that rocprofv3 printed"),
        (b"0. Top Stats\n0.1 Top Kernels\n", r"is what rocprof-compute printed .*; expected a profile"),
        (
            b"Loading results\nGemmTunableOp_BFloat16_TN(tn_8192_2_1024) -> Gemm_Hipblaslt_TN_61169,0.0171694\n",
            r"is what TunableOp printed, or has not tuned yet; expected its file of results",
        ),
        (b"GemmTunableOp_float_NN,nn_1024_1024_1024_ld_1024_1024_1024\n", r"is what TunableOp printed, or has "),
        (
            b"Average time per layer: \nconv1/7x7_s2\tforward: 1.35054 ms.\n",
            r"is Caffe's times of layers without .*; expected the lines as Caffe printed them",
        ),
        (EMPTY * 2, r"2 empty \[dv/dt\] blocks, and no other line of it is known; expected"),
        (b"\x89HDF\r\n" + bytes(99), r"binary data that begins 89 48 44 46 0d 0a 00 00; expected a profile of PyTorch"),
        (b'{"a": 1, "b": {"c": 2}}', r"JSON with the keys a, b, c; expected a profile of PyTorch"),
        (b"[[1, 2], [3]]", r"JSON of no known form; expected"),
        (b'["a", "b"]', r"JSON of no known form; expected"),
    ],
)
def test_error_what_holds_nothing_known_is_refused_in_one_line(tmp_path: Path, text: bytes, message: str) -> None:
    with pytest.raises(InputError, match=rf"(?=^[^\n]*$)^anything: {message}"):
        read_text(tmp_path, text)


@pytest.mark.shared
@pytest.mark.parametrize("size", [1024, 4096, 16384])
@pytest.mark.parametrize("name", ["alexnet-b1-fwd-interleaved", "lenet-b2-debuginfo-interleaved"])
def test_a_real_log_is_the_same_if_its_output_was_buffered(shared: Path, tmp_path: Path, name: str, size: int) -> None:
    """But where the cut lies in the text of a program, which nobody can tell from the log."""
    path = shared / "samples" / "dvdt" / f"{name}.interleaved-nomarks.log"
    whole = read_text(tmp_path, path.read_bytes())
    out, held, in_source = bytearray(), bytearray(), False
    for line in path.read_bytes().splitlines(keepends=True):
        if line[:1] in b"IWE" and line[1:5].isdigit() and not in_source:
            out += line
            continue
        in_source = (in_source or line.endswith(b"] <<\n")) and not line.endswith(b"] >>\n")
        held += line
        # A source is written at once here, so that no cut lies in it.
        while len(held) >= size and not in_source:
            cut = size if b"sources[" not in held else len(held)
            out += held[:cut]
            del held[:cut]
    notes = Notes()
    found = read_text(tmp_path, bytes(out + held), notes)
    assert plain(the_profile(found)) == plain(the_profile(whole))
    events = [[(event.kind, event.stamp) for event in the_log(one).events] for one in (whole, found)]
    assert events[0] == events[1]
    assert not the_profile(found).interleaved
    assert not notes.problems


@pytest.mark.parametrize(
    "first",
    [
        '{"solution":"ConvHipImplicitGemmGroupFwdXdlops","solver_id":137,"phase":"execution","performance_configs":[]}',
        '{"performance":{"name":"fwd-conv1x11u1","solution":"137/ConvX","direction":"forward"}}',
    ],
)
def test_a_log_that_begins_with_a_performance_record_is_a_log(tmp_path: Path, first: str) -> None:
    """Records of MIOpen that are JSON objects, one a line, before anything else (miopen-log.md 9.3)."""
    records = read_text(tmp_path, f"{first}\nMIOpen(HIP): Info [Handle] stream: 0, device_id: 0\n".encode())
    (found,) = records
    assert isinstance(found, MiopenLog)
    assert (found.count("line performance"), found.count("level ")) == (1, 1)


@pytest.mark.parametrize("text", ['{\n  "solution": 1}', '{"solutions":[]}', '{"solution": null}', '{"a":1}'])
def test_error_other_json_is_no_log(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="JSON"):
        read_text(tmp_path, text.encode())


CONV1 = b"I1120 10:46:48.020552  2155 caffe.cpp:465] conv1\tforward: 1 ms.\n"


def kernels(count: int) -> bytes:
    run = Program()
    for _ in range(count):
        run.enqueue("k", "0x60")
    return as_json(run.calls, indent=None)


def test_a_line_longer_than_any_of_the_log_is_counted_and_passed_over(tmp_path: Path) -> None:
    """Calls in JSON may stand in one long line; what Caffe and MIOpen print never does."""
    too_long = CONV1[:-1] + b"x" * run_log.LONGEST_LOG_LINE + b"\n"
    calls = kernels(400)
    assert len(calls) > run_log.LONGEST_LOG_LINE
    text = CONV1 + too_long + CONV1 + b"[dv/dt] << " + calls + b" [dv/dt] >>\n"
    records = read_text(tmp_path, text, notes := Notes())
    assert len(the_profile(records).activities) == 400
    assert len(the_log(records).layers) == 2
    assert "line of the log longer than 64 KiB: skipped" in kinds(notes)


def test_many_arrays_on_one_line_are_each_read(tmp_path: Path) -> None:
    calls = kernels(2)
    whole = b"[dv/dt] << " + calls + b" [dv/dt] >>"
    last = b"[dv/dt] << " + calls[:50] + b"\n" + calls[50:] + b"[dv/dt] >>\n"
    records = read_text(tmp_path, CONV1 + whole + b" x " + whole + last)
    assert [len(one.activities) for one in records if isinstance(one, Profile)] == [2, 2, 2]


@pytest.mark.parametrize(
    "prefix",
    [
        "MIOpen(HIP): ", "MIOpen: ", "MIOpen(HIP)   0.559: ", "MIOpen(HIP) (2025-10-09T08:53:20.000Z): ",
        "host1 12345 MIOpen(HIP)   0.559 (2025-10-09T08:53:20.000Z): ", "12345 MIOpen (2025-10-09T08:53:20.000Z): ",
        "\x1b[31mMIOpen(HIP)\x1b[0m: ", "2026-11-20T11:39:11.1Z stderr F MIOpen(OpenCL)  12.001: ",
    ],
)  # fmt: skip
def test_a_log_beside_a_profile_is_one_with_any_prefix(prefix: str, tmp_path: Path) -> None:
    """Every form that MIOpen's variables can give to the lines is a log's in a folder, too."""
    columns = "Kind,Agent_Id,Thread_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp"
    (tmp_path / "7_kernel_trace.csv").write_text(f"{columns}\nK,1,1,k,1,100,110\n")
    lines = "miopenStatus_t miopenSetTensor(miopenHandle_t){", "\tyDesc = {1, 2}, {2, 1}, packed, ", "}"
    (tmp_path / "run.log").write_text("".join(f"{prefix}{line}\n" for line in lines))
    found = convert(tmp_path)
    assert not [note.kind for note in found.notes if "neither profile nor log" in note.kind]
    assert [one["format"] for one in found.metadata["inputs"]][1:] == [run_log.NAME]


@pytest.mark.parametrize("lines", [10, 3000])
def test_a_log_beside_a_profile_may_begin_with_much_of_other_programs(lines: int, tmp_path: Path) -> None:
    """As one does that an installer wrote into first; a text without any line of it is none, and said."""
    columns = "Kind,Agent_Id,Thread_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp"
    (tmp_path / "7_kernel_trace.csv").write_text(f"{columns}\nK,1,1,k,1,100,110\n")
    others = "".join(f"Collecting package {number} of the index of packages\n" for number in range(lines))
    (tmp_path / "run.log").write_text(f"{others}MIOpen(HIP): miopenStatus_t miopenSetTensor(miopenHandle_t){{\n")
    (tmp_path / "pip.log").write_text(others)
    found = convert(tmp_path)
    assert [one["format"] for one in found.metadata["inputs"]][1:] == [run_log.NAME]
    assert [note.count for note in found.notes if "neither profile nor log" in note.kind] == [1]


@pytest.mark.parametrize(
    "line", ["MIOpen(HIP): Info [Handle] stream: 0, device_id: 0", "MIOpen(HIP): Warning [IsEnoughWorkspace] a"]
)
def test_a_log_that_says_nothing_of_an_operation_names_the_command_that_shows_it(line: str, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(f"{line}\n")
    (section,) = of_logs(analyse([tmp_path / "run.log"]).run)
    assert section.verdict.startswith("MIOpen's log (`mio2trace messages` lists what it says), no operation;")


def test_a_log_of_level_lines_alone_is_not_called_empty(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("MIOpen(HIP): Info2 [PrepareInvoker] Preparing kernel: miopenSp3AsmConvRxSU\n")
    with pytest.raises(
        InputError, match=r"neither an operation \(MIOPEN_ENABLE_LOGGING=1 .*nor a time in MIOpen's log"
    ):
        convert(tmp_path / "run.log")
