"""MIOpen's log lines to records: every prefix, layout and damage of miopen-log.md 2 and 3."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mio2trace.model.log import LocalTime
from mio2trace.model.miopen import Command, Entry, Message, MiopenLog
from mio2trace.notes import Notes
from mio2trace.readers.miopen import MiopenDecoder
from mio2trace.readers.miopen.entries import command_kind
from mio2trace.readers.miopen.lines import api_name, classify, parse_range
from tests.miopen_blocks import decoded

SIGNATURE = "miopenStatus_t miopenConvolutionForward(miopenHandle_t, const void *, const miopenTensorDescriptor_t){"
PARAMS = (
    ("alpha", "0x7ffd8b2cdd84"),
    ("xDesc", "100, 3, 32, 32"),
    ("x", "0x7f8e22e5b410"),
    ("wDesc", "32, 3, 3, 3"),
    ("convDesc", "conv2d, miopenConvolution, miopenPaddingDefault, {0, 0}, {1, 1}, {1, 1}, "),
    ("perfResults", ""),
    ("workSpaceSize", "97200"),
)
EXPECTED = tuple((name, value.strip()) for name, value in PARAMS)
RNN = "rnn -n 2 -W 3 -H 4 -k 5 -F 1"
COMMAND = "conv -n 1 -c 3 -H 8 -W 8 -k 4 -y 3 -x 3 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1"


def entry_text(prefix: str = "MIOpen(HIP): ", layout: str = "2.0", signature: str = SIGNATURE) -> str:
    """An entry in the layout of 1.0 (no prefix), 1.2 (prefix on the header) or 2.0 (on every line)."""
    head = "" if layout == "1.0" else prefix
    body = f"{prefix}\t" if layout == "2.0" else ""
    close = prefix if layout == "2.0" else ""
    return "".join((f"{head}{signature}\n", *(f"{body}{name} = {value}\n" for name, value in PARAMS), f"{close}}}\n"))


def decode(text: str | bytes) -> tuple[MiopenLog, list[bytes], Notes]:
    """The log, the foreign lines and the notes; `take` must agree with `feed` whatever the pieces."""
    data = text.encode() if isinstance(text, str) else text
    lines = data.splitlines(keepends=True) if b"\r" not in data else [part + b"\n" for part in data.split(b"\n")]
    notes = Notes()
    decoder = MiopenDecoder(0, notes)
    foreign = [line for number, line in enumerate(lines, 1) if not decoder.feed(number, line)]
    log = decoder.finish()
    for size in (1 << 20, 200):
        assert decoded(data[at : at + size] for at in range(0, len(data), size)) == log
    return log, foreign, notes


def entries(log: MiopenLog) -> list[Entry]:
    return [record for record in log.records if isinstance(record, Entry)]


WHOLE = ("miopenConvolutionForward", True, EXPECTED)


def told(entry: Entry) -> tuple[str, bool, tuple[tuple[str, str], ...]]:
    return entry.api, entry.complete, entry.params


@pytest.mark.parametrize("layout", ["1.0", "1.2", "2.0"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_the_three_layouts(layout: str, ending: str) -> None:
    text = "before\n" + entry_text(layout=layout) + "between\n" + entry_text(layout=layout) + entry_text(layout=layout)
    log, foreign, notes = decode(text.replace("\n", ending))
    assert [(one.line, one.end_line) for one in entries(log)] == [(2, 10), (12, 20), (21, 29)]
    assert [told(one) for one in entries(log)] == [WHOLE] * 3
    assert [line.strip() for line in foreign if line.strip()] == [b"before", b"between"]
    assert not list(notes)


TIMED = ["MIOpen(HIP)   0.559", "MIOpen(HIP) (2026-11-20T11:39:11.363Z)", "node7 12 MIOpen(HIP) 20000.001"]
TIMED += ["12 MIOpen(OpenCL)  12.250 (2026-11-20T11:39:11.363Z)", "MIOpen   0.100"]


@pytest.mark.parametrize("timed", TIMED)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_times_in_the_prefix_do_not_hide_repetitions(timed: str, ending: str) -> None:
    """Each line has its own time; records are those of the log without, each with the time of its first line."""
    plain = re.sub(r"\s+\d+\.\d{3}|\s\(2026.*?\)", "", timed)
    one = entry_text(prefix=f"{plain}: ") + f"{plain}: Command [LogCmdConvolution] ./bin/MIOpenDriver {COMMAND}\n"
    one += f"{plain}: Info [ConvolutionForward] algo = 0, workspace = 64\n"
    text = one * 12
    wanted, _, _ = decode(text)
    lines, stamps, elapsed, total = [], [], [], 0
    for at, line in enumerate(text.splitlines()):
        ms, date = (1 + at % 7) * 1001, f"2026-11-20T11:{at % 60:02}:11.363Z"
        prefix = re.sub(r"\d+\.\d{3}(?= |$)", f"{ms / 1000:.3f}", re.sub(r"2026[^)]*", date, timed))
        lines.append(prefix + line.removeprefix(plain))
        total += ms * 1000 if re.search(r"\d\.\d{3}(?: |$)", timed) else 0
        elapsed.append(total)
        stamps.append(at % 60)
    log, foreign, _ = decode(ending.join([*lines, ""]))
    assert not [line for line in foreign if line.strip()]
    assert len(log.records) == 36
    assert log.counts == wanted.counts
    for mine, theirs in zip(log.records, wanted.records, strict=True):
        assert mine.line == theirs.line
        assert mine.elapsed_ns == (elapsed[mine.line - 1] if total else None)
        minute = mine.stamp.ns // 60_000_000_000 % 60 if mine.stamp is not None else None
        assert minute == (stamps[mine.line - 1] if "2026" in timed else None)
        bare = [msgspec.structs.replace(record, stamp=None, elapsed_ns=None) for record in (mine, theirs)]
        assert bare[0] == bare[1]


PREFIXES = ["MIOpen(HIP): ", "MIOpen(OpenCL): ", "MIOpen: ", "INFO - MIOpen(HIP): ", "12:MIOpen(HIP): "]


@pytest.mark.parametrize("prefix", [*PREFIXES, "[rank0]: MIOpen(HIP): "])
def test_prefixes(prefix: str) -> None:
    text = entry_text(prefix) * 2 + f"{prefix}Command [LogCmdConvolution] ./bin/MIOpenDriver {COMMAND}\n"
    log, foreign, _ = decode(text + f"{prefix}Info [ConvolutionForward] algo = 0, workspace = 5\n")
    assert [one.params for one in entries(log)] == [EXPECTED] * 2
    assert [(one.tag, one.text) for one in log.records if isinstance(one, Command)] == [("LogCmdConvolution", COMMAND)]
    assert [(one.level, one.function, one.text, one.kind) for one in log.records if isinstance(one, Message)] == [
        ("Info", "ConvolutionForward", "algo = 0, workspace = 5", "execution")
    ]
    assert not foreign


def test_lines_without_a_prefix_are_of_the_thread_before() -> None:
    """Also when they are repetitions, and whatever they are: old commands, entries of 1.0, the driver's output."""
    old = f"miopenConvolutionForward: ./bin/MIOpenDriver {COMMAND}\n"
    driver = "Forward Convolution Verifies on CPU and GPU (5.6e-08)\n"
    threaded = "12 MIOpen(HIP): Info [ConvolutionForward] algo = 0, workspace = 64\n"
    bare = entry_text(layout="1.0")
    log, _, _ = decode(old * 3 + bare * 3 + threaded + (old + driver) * 5 + bare * 3 + entry_text() + bare * 2 + driver)
    told = [(record.text[:7], record.thread) for record in log.records if isinstance(record, Message)]
    assert told == [("algo = ", 12), *[("Forward", 12)] * 5, ("Forward", None)]
    assert [one.thread for one in entries(log)] == [None] * 3 + [12] * 3 + [None] * 3


def test_elapsed_time_is_summed_and_date_time_is_local() -> None:
    """Equal stamps are one object, as a log has many lines per millisecond; a day that is none is no stamp."""
    date = "(2026-03-04T05:06:07.089Z)"
    times = ("1.500", "0.250", f"12345.678 {date}", f"0.001 {date}", "0.001 (2026-02-31T05:06:07.089Z)")
    log, _, _ = decode(
        "".join(f"MIOpen(HIP) {at}: Info [ConvolutionForward] algo = 0, workspace = 5\n" for at in times)
    )
    assert [record.elapsed_ns for record in log.records][:3] == [1_500_000, 1_750_000, 12_347_428_000]
    assert log.records[2].stamp == LocalTime(2026, 3, 4, ((5 * 60 + 6) * 60 + 7) * 10**9 + 89_000_000)
    assert log.records[3].stamp is log.records[2].stamp
    assert log.records[4].stamp is None


LINES = entry_text().splitlines(keepends=True)
DAMAGED = {
    "blanks": entry_text().replace("\t", "    "),
    "no blanks at the end": re.sub(r" +\n", "\n", entry_text()),
    "colours": entry_text().replace("MIOpen", "\x1b[32mMIOpen").replace("\n", "\x1b[0m\n"),
    "a counter before it": "50%\r" + entry_text().replace("\n", "\r\n"),
    "the header glued to the first parameter": entry_text().replace("{\n", "{", 1),
    "everything on one line": entry_text().replace("\nMIOpen", "MIOpen"),
    "the header wrapped": entry_text().replace("miopenHandle_t, ", "miopenHandle_t,\n", 1),
    "another name of the function": entry_text().replace("ConvolutionForward(", "ConvolutionForward_impl(", 1),
    "a name space": entry_text().replace("miopenStatus_t miopen", "miopenStatus_t ns::miopen", 1),
    # a collector cuts lines: a signature has no brace then, but what follows it is as it was
    "the head cut off": LINES[0][:60] + "\n" + "".join(LINES[1:]),
    "the head cut off later": LINES[0][:80] + "\n" + "".join(LINES[1:]),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_that_terminals_and_people_do(damage: str) -> None:
    log, foreign, _ = decode(DAMAGED[damage] + entry_text())
    assert [told(one) for one in entries(log)] == [WHOLE] * 2
    assert not b"".join(foreign).replace(b"50%", b"").strip()


def test_a_line_of_many_parameters_is_no_stack_of_them() -> None:
    """Ends of all lines are lost: no more than an entry may have are told apart."""
    header, first, *rest = entry_text(layout="1.0").splitlines(keepends=True)
    log, _, _ = decode("".join((header, first, first.rstrip("\n") * 3000 + "\n", *rest)))
    assert [one.api for one in entries(log)] == ["miopenConvolutionForward"]
    text = LINES[0] + "".join(f"MIOpen(HIP): \tp{n} = {n}\n" for n in range(20)) + LINES[-1]
    assert [len(one.params) for one in entries(decode(text)[0])] == [16]


@pytest.mark.parametrize("layout", ["1.0", "1.2", "2.0"])
def test_lines_of_others_inside_an_entry_are_foreign(layout: str) -> None:
    lines = entry_text(layout=layout).splitlines(keepends=True)
    log, foreign, _ = decode("".join((*lines[:3], "conv1 took a while\n", *lines[3:])))
    assert [told(one) for one in entries(log)] == [WHOLE]
    assert foreign == [b"conv1 took a while\n"]


@pytest.mark.parametrize("layout", ["1.2", "2.0"])
def test_an_entry_without_its_end_is_kept_and_said(layout: str) -> None:
    cut = "".join(entry_text(layout=layout).splitlines(keepends=True)[:4])
    log, _, notes = decode(cut + entry_text(layout=layout))
    assert [told(one) for one in entries(log)] == [(WHOLE[0], False, EXPECTED[:3]), WHOLE]
    assert [str(note) for note in notes] == ["MIOpen entry cut off (line 1)"]


def test_a_log_that_starts_inside_an_entry() -> None:
    log, foreign, _ = decode("".join(LINES[4:]) + entry_text())
    assert [told(one) for one in entries(log)] == [("", False, EXPECTED[3:]), WHOLE]
    assert not foreign


def test_nested_entries_are_marked() -> None:
    text = (
        "MIOpen(HIP): miopenStatus_t miopen::CallGemm(const Handle&, GemmDescriptor){\n"
        'MIOpen(HIP): \t"rocBLAS" = rocBLAS\nMIOpen(HIP): }\n'
    )
    log, _, _ = decode(text + entry_text())
    assert [(one.api, one.nested) for one in entries(log)] == [("CallGemm", True), ("miopenConvolutionForward", False)]


def test_the_reduce_descriptor_has_several_lines() -> None:
    text = (
        "MIOpen(HIP): miopenStatus_t miopenReduceTensor(miopenHandle_t, const miopenReduceTensorDescriptor_t){\n"
        "MIOpen(HIP): \thandle = stream: 0, device_id: 0\n"
        "MIOpen(HIP): \treduceTensorDesc = ReduceTensor Descriptor : \n"
        "Reduction Operation Type : 5\nReduction CompType : 1\nNanPropagation Option : 0\nIndices Option : 0\n\n"
        "MIOpen(HIP): \taDesc = {2, 3, 4, 4}, {48, 16, 4, 1}, packed, \nMIOpen(HIP): }\n"
    )
    log, foreign, _ = decode(text)
    params = dict(entries(log)[0].params)
    assert params["reduceTensorDesc"] == (
        "ReduceTensor Descriptor : ; Reduction Operation Type : 5; Reduction CompType : 1; NanPropagation Option : 0; "
        "Indices Option : 0"
    )
    assert params["aDesc"].startswith("{2, 3, 4, 4}")
    assert not foreign


@pytest.mark.parametrize(
    ("line", "tag", "text"),
    [
        ("miopenConvolutionForward: ./bin/MIOpenDriver conv -n 1 -t 1", "miopenConvolutionForward", "conv -n 1 -t 1"),
        ("MIOpenDriver conv -n 1 -V 0", "", "conv -n 1 -V 0"),
        ("MIOpenDriver: conv -n 1", "", "conv -n 1"),
        ("$ ./bin/MIOpenDriver pool -n 1", "", "pool -n 1"),
        ("MIOpen(HIP): Command [LogCmdRNN] MIOpenDriver.exe rnn -n 1 -k 2", "LogCmdRNN", "rnn -n 1 -k 2"),
        # that of an RNN is printed twice, and counted once
        (f"{RNN}\nMIOpen(HIP): Command [LogCmdRNN] ./bin/MIOpenDriver {RNN}", "LogCmdRNN", RNN),
    ],
)
def test_command_lines(line: str, tag: str, text: str) -> None:
    log, foreign, _ = decode(line + "\n")
    assert [(one.tag, one.text) for one in log.records if isinstance(one, Command)] == [(tag, text)]
    assert not foreign


def test_tags_and_other_records() -> None:
    text = (
        "MIOpen(HIP): Info2 [PlainTextDb, true> > >] ConvAsm3x3U: Not applicable\n"
        "MIOpen(HIP): Info [] MIOPEN_FIND_MODE = DYNAMIC_HYBRID(5)\n"
        "MIOpen(HIP): Info [GetSolutions]\n"
        "MIOpen: Error [C:/x/ai_heuristics.hpp:62] Unable to load file: y\n"
        "MIOpen Error: host:/x/y.cpp:81: Running kernel failed\n"
        '{"solution":"A","solver_id":1}\n'
        "Info: Invoking kernel: aInfo: Invoking kernel: bkernel_name = b, work_dim = 3, "
        "global_work_offset = { 0, 0, 0 }, global_work_dim = { 8, 1, 1 }, local_work_dim = { 4, 1, 1 }\n"
    )
    log, foreign, _ = decode(text)
    assert not foreign
    levels = ("candidate", "environment", "error", "solutions")
    lines = ("error", "launch", "performance")
    assert dict(log.counts) == dict.fromkeys([*(f"level {of}" for of in levels), *(f"line {of}" for of in lines)], 1)
    assert [one.level for one in log.records if isinstance(one, Message)] == ["Error", "Error", "Performance", "Debug"]
    assert classify("Info", "Nothing", "known") == "other"
    assert classify("Info2", "run", "kernel_name = x") == "launch"


def test_a_roctx_range_is_an_entry_on_one_line() -> None:
    assert parse_range("s_api = miopenConvolutionForward | alpha = 0x1 | xDesc = {1, 2}, {2, 1}, packed,  | ") == (
        "miopenConvolutionForward",
        b"alpha = 0x1\nxDesc = {1, 2}, {2, 1}, packed,\n",
    )
    assert parse_range("conv1") is None


def test_what_tells_nothing_is_counted_and_not_kept() -> None:
    signature = "miopenStatus_t miopenCreateTensorDescriptor(miopenTensorDescriptor_t *){"
    log, _, _ = decode(entry_text(signature=signature) * 4)
    assert log.records == ()
    assert dict(log.counts) == {"entry miopenCreateTensorDescriptor": 4}
    assert len({id(one.call) for one in entries(decode(entry_text() * 3)[0])}) == 1  # equal bodies are one object


def mixed_log() -> bytes:
    """All three layouts, commands, level lines and foreign lines."""
    parts = []
    for layout in ("1.0", "1.2", "2.0"):
        parts.append(entry_text(layout=layout))
        parts.append("foreign = line\n" if layout == "2.0" else "foreign line\n")
        parts.append(f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver {COMMAND}\n")
        parts.append("MIOpen(HIP): Info [ConvolutionForward] algo = 0, workspace = 5\n")
    return "".join(parts).encode()


MIXED = mixed_log()


@given(st.integers(0, len(MIXED)))
def test_cutting_anywhere_loses_the_cut_entry_at_most(at: int) -> None:
    halves = [one for part in (MIXED[:at], MIXED[at:]) for one in entries(decode(part)[0]) if one.complete]
    assert len(halves) >= 2
    assert {told(one) for one in halves} == {WHOLE}


# Against the samples

HEADER = re.compile(rb"miopen::[\w:]+\(|miopenStatus_t miopen\w+\(")
LEVEL = re.compile(rb"MIOpen(?:\((?:HIP|OpenCL)\))?[^:\n]*: (?:Error|Warning|Info2?|Trace|Fatal) \[")
DRIVER = re.compile(rb"(?:^|Command \[\w+\] (?:\./bin/)?|: \./bin/)MIOpenDriver(?:\.exe)?:? [A-Za-z]", re.M)


@pytest.mark.shared
def test_every_entry_command_and_level_line_of_the_posted_logs(shared: Path) -> None:
    """Counted here by a search of the raw text, there by the decoder."""
    files = sorted((shared / "samples" / "miopen-logs").glob("*.txt"))
    assert len(files) > 30
    levels, other = 0, 0
    for path in files:
        data = path.read_bytes()
        log, _, _ = decode(data)
        named = sum(number for kind, number in log.counts if kind.startswith("entry m") or kind.startswith("entry C"))
        # one file's wrapped header cuts a type name, not the function's
        counts = [named, log.count("command "), log.count("level ")]
        assert counts == [len(of.findall(data)) for of in (HEADER, DRIVER, LEVEL)], path.name
        levels += log.count("level ")
        other += log.count("level other")
        assert not log.count("stray"), path.name
    assert levels > 250
    assert other <= levels / 100


@pytest.mark.shared
def test_every_call_of_the_real_logs_has_its_entry(shared: Path) -> None:
    """Truth recorded inside the process: name and line of each API call."""
    sets = sorted((shared / "samples" / "miopen-opencl").glob("*/truth.json"))
    assert len(sets) >= 11
    for path in sets:
        truth = json.loads(path.read_bytes())
        decoder = MiopenDecoder(0, Notes())
        for number, line in enumerate(path.with_name("run.log").read_bytes().splitlines(keepends=True), 1):
            if not re.match(rb"[IWEF]\d{4} |\[dv/dt\]", line):
                decoder.feed(number, line)
        log = decoder.finish()
        called = Counter(call["name"] for call in truth["api_calls"] if call["log_line"] is not None)
        counted = {kind[6:]: number for kind, number in log.counts if kind.startswith("entry miopen")}
        inner = "miopenGetTensorDescriptorSize"  # called by the library itself
        assert counted | {inner: 0} == called | {inner: 0}, path.parent.name
        kept = {one.line: one.api for one in entries(log) if not one.nested}
        names = {call["log_line"]: call["name"] for call in truth["api_calls"] if call["log_line"] is not None}
        assert all(names.get(line, api) == api for line, api in kept.items()), path.parent.name
        commands = {one.line for one in log.records if isinstance(one, Command)}
        assert commands == {call["cmd_line"] for call in truth["api_calls"] if call.get("cmd_line")}, path.parent.name
        assert [log.count(kind) for kind in ("cut entry", "stray", "level other")] == [0, 0, 0], path.parent.name


@pytest.mark.parametrize(
    "line",
    [
        "MIOpen(HIP): (){\n",  # a header without a name
        "MIOpen(HIP): Info [SetValues] 3-8-8-3x3-4-6x-6-2-0x0-1x1-1x1-0-NCHW-FP32-F, content inserted: a:b\n",
        "99999999999999999999 MIOpen(HIP): }\n",
        "MIOpen(HIP) 99999999999999999999.000: }\n",
    ],
)
def test_damage_that_fuzzing_found(line: str) -> None:
    decode(line + entry_text() + line)


def test_text_before_a_prefix_inside_an_entry_stays_out_of_the_values() -> None:
    """Also where the entry's header is known and the entry is taken whole."""
    damaged = entry_text().replace("MIOpen(HIP): \twDesc", "MIOpen(OpeMIOpen(HIP): \twDesc")
    bare = entry_text(layout="1.2").replace("97200\n", f"97200{entry_text(layout='1.2')}", 1)
    log, _, _ = decode(entry_text() + damaged + entry_text(layout="1.2") + bare)
    assert {one.params for one in entries(log)} == {EXPECTED}
    assert [one.complete for one in entries(log)] == [True, True, True, False, True]


@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.integers(2, 12))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_lines_of_threads_between_each_other_are_told_apart(seed: int, threads: int, calls: int) -> None:
    """Now whole entries, which are like earlier ones, now line by line: every one is its own thread's, and whole."""
    rng = Random(seed)
    kinds = [entry_text(prefix="{} MIOpen(OpenCL): ", signature=f"miopenStatus_t miopen{name}(miopenHandle_t){{")
             for name in ("ConvolutionForward", "ActivationForward")]  # fmt: skip
    left = {4711 + thread: [rng.choice(kinds) for _ in range(calls)] for thread in range(threads)}
    pieces: dict[int, list[str]] = {}
    for thread, texts in left.items():
        pieces[thread] = []
        for text in texts:
            text = text.replace("{} MIOpen", f"{thread} MIOpen")
            pieces[thread] += [text] if rng.random() < 0.6 else text.splitlines(keepends=True)
    whole = ""
    while any(pieces.values()):
        whole += pieces[rng.choice([thread for thread, waiting in pieces.items() if waiting])].pop(0)
    log, foreign, notes = decode(whole)
    found = entries(log)
    assert not foreign
    assert not list(notes)
    assert all(entry.complete and entry.params == EXPECTED for entry in found)
    assert Counter(entry.thread for entry in found) == dict.fromkeys(left, calls)


def test_commands_are_counted_by_words_that_name_no_machine() -> None:
    """Counts are written as they are: what has digits, but for a type's, is not of the driver's vocabulary."""
    for word in ("conv", "bnormfp16", "CBAInfer"):
        assert command_kind(f"{word} -n 1") == f"command {word}"
    for text in ("x4711c0s5b0n1 -n 1", "-n 1"):
        assert command_kind(text) == "command of another form"


def test_a_function_is_named_as_the_library_names_them() -> None:
    """A small word before a bracket may be the beginning of an address (``bob(at)example``)."""
    names = (b"miopenConvolutionForward", b"miopenCreate_impl", b"DirConvFindCore", b"bob")
    found = [api_name(name) for name in names]
    assert found == ["miopenConvolutionForward", "miopenCreate", "DirConvFindCore", "unnamed"]
