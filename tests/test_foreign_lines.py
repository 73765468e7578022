"""Lines of other programs are passed over many at a time: nothing that is read may depend on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.notes import InputError, Notes
from mio2trace.readers import run_log
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.caffe import GLOG, GLOG_HEAD
from mio2trace.readers.miopen import _ALL_ZERO
from mio2trace.readers.miopen import lines as miopen_messages
from mio2trace.readers.run_log import OtherPrograms
from mio2trace.source import Source
from tests.often import saved
from tests.small_runs import benchmark

CALLS, LOG = benchmark()
GLOG_LINES = [line.encode() for line in LOG.splitlines()]
OURS = [
    b"MIOpen(HIP): Info [get_device_name] Raw device name: gfx906",
    b"MIOpen(HIP): Info2 [GetPerfDb] Unable to load perf db for conv 3-227-227-11x11-96-55-55-7-0x0-4x4-1x1-0-NCHW",
    b"12 MIOpen(HIP): Info [ConvolutionForward] algo = 0, workspace = 7375872",
    b"MIOpen(HIP)   0.559: Info2 [SearchForAllSolutions] ConvAsm3x3U: Not applicable",
    b"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 3 -H 8 -W 8 -k 2 -y 3 -x 3 -F 1 -t 1",
    b"MIOpen(HIP): miopenStatus_t miopenConvolutionForward(miopenHandle_t, const void *){",
    b"MIOpen(HIP): \thandle = 0x7f0000000001",
    b"MIOpen(HIP): }",
    b"\thandle = 0x7f0000000001",
    b"}",
    b"miopenStatus_t miopenPoolingForward(miopenHandle_t){",
    b"stats: name, n, c, ho, wo",
    b"GPU Kernel Time Forward Conv. Elapsed: 0.1 ms",
    b'{"solution":{"a":1}}',
    b"rnn -n 3 -k 4",
    b"SetTensor",
    b"forward Verifies OK",
    b"s_api = miopenConvolutionForward | alpha = 1",
    b"l_name = x",
    b"src real descritor: 1, 2",
    b"[dv/dt] <<",
    b"[]",
    b"[dv/dt] >>",
    b"[dv/",
    b"[dv/dt] clFinish",
    b'I1120 10:46:48.020552  2155 net.cpp:51] Initializing net from parameters: name: "x"',
    b'  name: "conv1"',
]
EMPTY_ARRAY = b"[dv/dt] <<\n[]\n[dv/dt] >>"
OTHERS = [
    b"",
    b" \t",
    b"\r",
    b"\x0b\x0c",
    b"[ 12%] Building CXX object x.cpp.o",
    b"epoch 3: loss 0.4512",
    b"I1120 10:46:48.02055",
    b"W tensorflow/core/bfc.cc:243] Allocator",
    b"a rnn and stats: of its own",
    b"progress 10%\rprogress 20%",
    b"x" * 300,
    b"\xff\x00",
]


def outcome(folder: Path, data: bytes, block: int) -> object:
    path = saved(folder / "log", data)
    notes = Notes()
    source = Source(str(path), 0, notes)
    source.block_size = block
    try:
        records = run_log.read(source, ReadOptions(), notes)
    except InputError as error:
        return str(error)
    finally:
        source.close()
    return repr(records), repr(sorted((key, repr(note.count), note.places) for key, note in notes._notes.items()))


NET = [b'I1120 10:46:48.020552  2155 net.cpp:51] Initializing net from parameters: name: "x"', b'  name: "conv1"']
BARE = [b"miopenStatus_t miopenPoolingForward(miopenHandle_t){", b"handle = 0x7f0000000001", b"}"]


def lines_of(*lines: bytes) -> Any:
    """An example whose lines are only recognised by the line before each."""
    return example(lines=[OURS[1], *lines, b""], end=b"\n", last=b"", block=1 << 20)


@given(
    lines=st.lists(
        st.one_of(
            st.sampled_from(OURS), st.sampled_from(OTHERS), st.sampled_from(GLOG_LINES), st.just(EMPTY_ARRAY),
            st.lists(st.sampled_from(OTHERS), min_size=3, max_size=8).map(b"\n".join),
            st.sampled_from(GLOG_LINES).map(lambda line: b"MIOp glued " + line), st.binary(max_size=6),
        ),
        max_size=60,
    ),
    end=st.sampled_from([b"\n", b"\r\n"]),
    last=st.sampled_from([b"", b"\n"]),
    block=st.sampled_from([64, 1 << 20]),
)  # fmt: skip
@example(lines=[OURS[0], b"\x1e", OURS[0]], end=b"\n", last=b"", block=64)
@lines_of(OTHERS[4], *BARE, OTHERS[4], *BARE, OTHERS[5])
@lines_of(NET[0], OTHERS[4], NET[1], b'  type: "Convolution"', OTHERS[5], GLOG_LINES[0])
@lines_of(NET[0], b"layer {", NET[1], b'  type: "Convolution"', b"}", GLOG_LINES[0])
@lines_of(b"[dv/dt] clFin" + GLOG_LINES[0], OTHERS[4], OTHERS[5], b"[dv/dt] timestamp", b"x")
@lines_of(b"[dv/" + GLOG_LINES[0], b"dt] clFinish", OURS[0], OTHERS[4], OTHERS[5], b"[dv/dt] timestamp")
def test_what_is_read_does_not_depend_on_how(
    tmp_path_factory: object, lines: list[bytes], end: bytes, last: bytes, block: int
) -> None:
    folder = tmp_path_factory.mktemp("log")  # type: ignore[attr-defined]
    data = OURS[0] + end + end.join(lines) + last  # with MIOpen in every block the short way is taken
    with (
        mock.patch.object(OtherPrograms, "until", lambda self, data, at: at),
        mock.patch.object(run_log, "_EMPTY_ARRAY", b"not there"),
    ):
        expected = outcome(folder, data, block)
    assert outcome(folder, data, block) == expected


def test_other_programs_are_passed_over_and_counted(tmp_path: Path) -> None:
    """Beside it the lines that count, with their numbers."""
    others = [line + b"\n" for line in OTHERS] * 50
    data = b"".join([OURS[0] + b"\n", *others, OURS[2] + b"\n", *others, GLOG_LINES[0] + b"\n", *others])
    path = saved(tmp_path / "log", data)
    notes = Notes()
    fed = []
    feed = run_log._Log.feed

    def counted(self: run_log._Log, line: bytes, numbered: run_log._Numbered) -> None:
        fed.append(line)
        feed(self, line, numbered)

    source = Source(str(path), 0, notes)
    with mock.patch.object(run_log._Log, "feed", counted):
        records = run_log.read(source, ReadOptions(), notes)
    source.close()
    (miopen,) = [one for one in records if isinstance(one, MiopenLog)]
    (caffe,) = [one for one in records if isinstance(one, FrameworkLog)]
    assert caffe.first_stamp is not None
    assert [record.line for record in miopen.records] == [1, 2 + len(others)]
    assert miopen.foreign == 3 * 50 * sum(bool(line.strip()) for line in OTHERS)
    assert len(fed) < 10, "one by one"


def test_until_stops_where_a_line_may_be_ours() -> None:
    data = b"one\ntwo\nMIOpen\nthree\nrnn\nstats: x\nfour rnn\n[dv/dt]\nlast MIOpen"
    finder = OtherPrograms()
    at, stops = 0, []
    while at < len(data):
        end = finder.until(data, at)
        if end == at:
            stops.append(at)
            end = data.find(b"\n", at) + 1 or len(data)
        at = end
    assert [data[at : data.find(b"\n", at)] for at in stops[:-1]] == [b"MIOpen", b"rnn", b"stats: x", b"[dv/dt]"]
    assert data[stops[-1] :] == b"last MIOpen"
    assert OtherPrograms().until(b"rnn\n", 0) == 0
    assert run_log.MARKER in data


@given(st.sampled_from([*GLOG_LINES, *OTHERS]), st.binary(max_size=20), st.integers(0, 60), st.integers(0, 8))
def test_the_head_of_a_glog_line_is_found_where_the_line_is(line: bytes, what: bytes, at: int, cut: int) -> None:
    line = line[:at] + what + line[at + cut :]
    assert (GLOG.search(line) is None) == (GLOG_HEAD.search(line) is None)
    assert GLOG.search(line) is None or b"]" in line


_TAGS = st.sampled_from(["run", "GetInvoker", "FindConvolution", "GetKernels", "GetPerfDb", "x", "Search"])
_PARTS = st.sampled_from(
    [
        "id: ", "N=", " C=", " K=", "miopenConvolutionFwdAlgoGEMM", "Algo", ": ", " time: ", "workspace", "db",
        "kernel", ".cl", "MIOPEN_X", "=", " < ", "Looking for key", "Not applicable", "Executing the ",
        "HIPRTC v", "gemm_desc",
    ]
)  # fmt: skip


@given(
    st.sampled_from(["Info", "Info2", "Warning", "Error", "Trace"]),
    _TAGS,
    st.lists(st.one_of(_PARTS, st.text("0123456789.- ", max_size=4)), max_size=6).map("".join),
)
def test_the_kind_of_a_message_does_not_depend_on_its_digits(level: str, tag: str, text: str) -> None:
    """So that kinds are remembered for texts without them."""
    zeros = text.encode().translate(_ALL_ZERO).decode()
    assert miopen_messages.classify(level, tag, text) == miopen_messages.classify(level, tag, zeros)
