"""Logs that a container, the journal or a launcher kept are read as those that the program printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mio2trace import analyse
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import Entry, MiopenLog
from mio2trace.readers.base import kernel_name
from mio2trace.readers.collected import plain_lines
from tests.often import saved

LOG = b"""I1120 11:34:29.509450 30462 caffe.cpp:361] Use GPU with device ID 0
I1120 11:34:29.509458 30462 net.cpp:57] Initializing net from parameters:
layer {
  name: "conv1"
  type: "Convolution"
}

I1120 11:34:29.509858 30462 net.cpp:150] Setting up conv1
MIOpen(OpenCL): miopenStatus_t miopenConvolutionForward(miopenHandle_t, const void *){
alpha = 0x7ffe5cd7a8b0
xDesc = 1, 1, 28, 28
wDesc = 20, 1, 5, 5
convDesc = 0, 0, 1, 1, 1, 1,
algo = 0
yDesc = 1, 20, 24, 24
}
I1120 11:34:29.609450 30462 caffe.cpp:412] conv1\tforward: 3.5 ms.
"""
DAY = "2026-11-20T11:34:29."


def docker_file(number: int, line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": f"{DAY}{number:09}Z"}, separators=(",", ":"))


COLLECTORS: dict[str, Callable[[int, str], str]] = {
    "docker compose": lambda number, line: f"train-1  | {line}",
    "docker logs -t": lambda number, line: f"{DAY}{number:09}Z {line}",
    "kubernetes": lambda number, line: f"{DAY}{number:09}+02:00 stderr F {line}",
    "journal": lambda number, line: f"Nov  2 11:34:29 node07 train[742]: {line}",
    "rsyslog": lambda number, line: f"{DAY}{number:06}+01:00 node07 train[742]: {line}",
    "ts": lambda number, line: f"Nov 20 11:34:29 {line}",
    "Jenkins": lambda number, line: f"[2026-11-20T11:34:29.{number:03}Z] {line}",
    "a date": lambda number, line: f"2026-11-20 11:34:29,{number:03} {line}",
    "mpirun": lambda number, line: f"[1,0]<stderr>:{line}",
    "mpirun, newer": lambda number, line: f"[1,0]<stderr>: {line}",
    "mpirun, newer, no blanks at the ends": lambda number, line: f"[1,0]<stderr>: {line}".rstrip(),
    "torchrun": lambda number, line: f"[default0]:{line}",
    "srun": lambda number, line: f" 0: {line}",
    "Ray": lambda number, line: f"\x1b[36m(RayWorkerWrapper pid=742, ip=10.0.0.7)\x1b[0m {line}",
    "vLLM": lambda number, line: f"(Worker_TP0 pid=742) {line}",
    "colours": lambda number, line: f"\x1b[33m{line}\x1b[0m",
    "two of them": lambda number, line: f"{DAY}{number:09}Z [rank0]: {line}",
    "docker's file": docker_file,
}


def records(path: Path, content: bytes) -> tuple[FrameworkLog, MiopenLog]:
    path.write_bytes(content)
    logs, libraries = analyse([path]).run.logs, analyse([path]).run.libraries
    return logs[0], libraries[0]


def entries(log: MiopenLog) -> list[tuple[int, bytes]]:
    return [(record.line, record.body) for record in log.records if isinstance(record, Entry)]


@pytest.mark.parametrize("collector", COLLECTORS)
def test_a_collectors_prefix_is_no_part_of_a_line(collector: str, tmp_path: Path) -> None:
    """Records, their lines and their times are those of the program's own log; parameters without prefix, too."""
    change = COLLECTORS[collector]
    lines = [change(number, line) for number, line in enumerate(LOG.decode().splitlines())]
    expected = records(tmp_path / "plain.log", LOG)
    assert [(layer.layer, layer.type) for layer in expected[0].net] == [("conv1", "Convolution")]
    assert expected[1].count("entry miopenConvolutionForward") == 1
    assert expected[1].count("cut entry") == 0
    assert records(tmp_path / "kept.log", "\n".join([*lines, ""]).encode()) == expected


def test_lines_printed_twice_are_lines_printed_once(tmp_path: Path) -> None:
    """What stands in a log that two handlers wrote is what one of them wrote, at its first lines."""
    twice = b"".join(line * 2 for line in LOG.splitlines(keepends=True))
    (framework, library), (once, expected) = records(tmp_path / "a.log", twice), records(tmp_path / "b.log", LOG)
    assert [(event.kind, event.text, event.line) for event in framework.events] == [
        (event.kind, event.text, 2 * event.line - 1) for event in once.events
    ]
    assert entries(library) == [(2 * line - 1, body) for line, body in entries(expected)]
    assert library.counts == expected.counts


POOLING = [f"MIOpen(HIP): {of}" for of in ("miopenStatus_t miopenPoolingForward(int){", "\txDesc = 1, 2, 4, 4", "}")]


def test_calls_that_come_twice_stay_two(tmp_path: Path) -> None:
    """Equal calls one after another are calls: only where all lines come in pairs, one of each is a copy."""
    path = saved(tmp_path / "run.log", "".join(f"{line}\n" for line in POOLING) * 9)
    assert analyse([path]).run.libraries[0].count("entry") == 9


@pytest.mark.parametrize(
    "prefix", ["[1,{}]<stderr>:", "(Worker_TP pid={}) ", "2026-11-20T11:34:29.509450+01:00 node07 train[{}]: "]
)
def test_several_processes_keep_their_lines_apart(prefix: str, tmp_path: Path) -> None:
    lines = [f"{prefix.format(rank)}{line}" for line in POOLING for rank in (0, 1)]
    log = analyse([saved(tmp_path / "run.log", "\n".join([*lines, ""]))]).run.libraries[0]
    assert [(entry.thread, entry.line) for entry in log.records] == [(0, 1), (1, 2)]
    assert log.count("cut entry") == 0


def test_where_lines_are_cut_into_blocks_changes_nothing() -> None:
    """A prefix, a colour, an object may lie across two blocks; what has no end is not waited for."""
    for change in COLLECTORS.values():
        data = "".join(change(number, line) + "\n" for number, line in enumerate(LOG.decode().splitlines())).encode()
        for size in (1, 7, 64, len(data)):
            blocks = (data[at : at + size] for at in range(0, len(data), size))
            assert b"".join(plain_lines(data, blocks)) == LOG

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * (1 << 20)

    head = b"[rank0]: x\n" * 9
    assert len(next(plain_lines(head, endless()))) < 20 << 20


@pytest.mark.parametrize("line", ["conv1 | 3.5 ms", "12: done", "[1,0]<stderr>:x", "Nov 20 11:34:29 a b: x"])
def test_a_few_lines_like_a_collectors_stay(line: str) -> None:
    data = LOG + f"{line}\n".encode() * 5
    assert b"".join(plain_lines(data, iter([data]))) == data


@pytest.mark.parametrize(
    ("plain", "more"),
    [
        *(("void f<double>(double*, int)", end) for end in (".kd", " [clone .kd]", " (.kd)")),
        ("f", ".isra.0.constprop.12 [clone .kd]"),
        ("_ZN3foo3barEi", ".part.3.cold"),
        *((name, "") for name in (".kd", "v1.2")),
    ],
)
def test_what_compilers_hang_on_is_no_part_of_a_name(plain: str, more: str) -> None:
    assert kernel_name(plain + more) == plain
    assert kernel_name(plain + more + ".kd" * 40_000).startswith(plain)


def test_a_log_without_miopens_prefix_tells_the_same(tmp_path: Path) -> None:
    command = b"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 1 -H 28 -W 28 -k 20 -F 1\n"
    log = LOG.replace(b"}\nI", b"}\n" + command + b"I")
    _, library = records(tmp_path / "a.log", log)
    _, bare = records(tmp_path / "b.log", log.replace(b"MIOpen(OpenCL): ", b"").replace(b"MIOpen(HIP): ", b""))
    assert library.count("command conv") == 1
    assert bare == library


@pytest.mark.parametrize("line", [line for line in LOG.splitlines() if not line.startswith(b"alpha")])
def test_a_line_that_hangs_at_another_is_read(line: bytes, tmp_path: Path) -> None:
    """Where a line's end is lost nothing else is: the same events, layers and parameters as before."""
    log = LOG * 2  # the names of parameters are known the second time
    at = log.rindex(line) + len(line)
    damaged = log[:at] + log[at + 1 :]
    one, other = records(tmp_path / "a.log", log), records(tmp_path / "b.log", damaged)
    for framework, library in (one, other):
        assert [(event.kind, event.text) for event in framework.events] == [("setting up", "conv1")] * 2
        assert [(layer.layer, layer.printed_ns) for layer in framework.layers] == [("conv1", 3_500_000)] * 2
        assert [body for _, body in entries(library)] == [body for _, body in entries(one[1])]
        assert library.counts == one[1].counts


def test_a_name_and_a_type_on_one_line_of_the_net_are_two(tmp_path: Path) -> None:
    net = b'I1120 11:34:29.5 1 net.cpp:57] Initializing net from parameters:\nlayer {\n  name: "a"  type: "ReLU"\n}\n'
    path = saved(tmp_path / "run.log", net.replace(b".5 ", b".500000 "))
    assert [(layer.layer, layer.type) for layer in analyse([path]).run.logs[0].net] == [("a", "ReLU")]
