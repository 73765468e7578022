"""The output of a run: Caffe's log, MIOpen's log, dv/dt blocks as text or JSON, in any mixture (dvdt-ck.md 1.1, 2.1).

Reads the lines once; each line goes to the decoder that knows it. Lines of other programs are counted and ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mio2trace.model.log import PROCESS, FrameworkLog
from mio2trace.model.miopen import Command, Entry, LoggedCall, Message, MiopenLog
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.outgoing import count
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.caffe import GLOG_HEAD, HEAD_ENDS, CaffeDecoder
from mio2trace.readers.collected import WRITER, is_docker_file, plain_lines
from mio2trace.readers.gemms import WORDS as BLAS_WORDS
from mio2trace.readers.gemms import BlasDecoder
from mio2trace.readers.miopen import MiopenDecoder
from mio2trace.readers.miopen.lines import ANSI, BEGINNINGS, PREFIX, WORDS, note_alarms
from mio2trace.source import Source

if TYPE_CHECKING:
    from mio2trace.readers.opencl.dvdt import BlockDecoder  # imported where it is used: few logs have text of dv/dt

NAME = "run log (Caffe, MIOpen, dv/dt blocks)"

# Not a number after the bracket: that is how prefixes of other programs begin ("[1,0]<stderr>:", "[ 12%]").
# Nor MIOpen's performance records, one object a line (miopen-log.md 9.3).
_JSON = late(rb"\s*(?:\{\s*\"(?!(?:solution|performance)\":[\"{])|\[\s*[\[{\]\"])")
_ARRAY_OPENS = late(rb"\[dv/dt\]\s*<<\s*")
_ARRAY_CLOSES = late(rb"\[dv/dt\]\s*>>")
_ARRAY_BLOCK = 1 << 20
_EMPTY_ARRAY = b"[dv/dt] <<\n[]\n[dv/dt] >>\n"
"""A child process of a profiled program leaves this if it makes no call; there may be one per iteration."""
LONGEST_LINE = 64 << 20
"""Bytes; no known log has longer lines. A longer line is cut: without an end it would fill the memory."""
LONGEST_LOG_LINE = 64 << 10
"""Bytes; lines of Caffe and MIOpen are far shorter. Calls in JSON and sources of programs may be longer."""
_MIOPEN = late(
    rb"^.{0,120}?\bMIOpen(?:\((?:HIP|OpenCL)\))?(?:[ \t]{1,12}\d{1,12}\.\d{3})?(?: \(\d{4}-[^()\n]{1,40}\))?: ",
    re.MULTILINE,
)
_PROFILED = "a profile of the same run (`rocprofv3 --sys-trace --output-format rocpd -- COMMAND`)"
_OTHERS: Mapping[re.Pattern[bytes], tuple[str, str]] = {
    late(rb"^(?:Best )?Perf(?: for [^\n]{1,400})?:\s+[\d.]{1,20} ms, [\d.]{1,20} TFlops", re.MULTILINE): (
        "what a benchmark of Composable Kernel printed (ckProfiler)", _PROFILED,
    ),
    late(rb"MIGraphX Version: |^Rate: [\d.]{1,20} ?(?:inferences?)?/sec|^gpu::[^\n]{1,400}: [\d.]{1,20}ms / \d",
         re.MULTILINE): (
        "what `migraphx-driver` printed", f"MIOpen's log (MIOPEN_ENABLE_LOGGING=1), or {_PROFILED}",
    ),
    late(rb"^\|\s{0,60}LABEL\s{0,60}\|\s{0,20}COUNT\s{0,20}\|\s{0,20}DEPTH", re.MULTILINE): (
        "a table of rocprof-sys without the times of kernels", "its database (ROCPROFSYS_USE_ROCPD=ON)",
    ),
    late(rb"^[| ]{0,400}Name[| ]{1,400}Self CPU(?: total)? %", re.MULTILINE): (
        "a table of sums that PyTorch's profiler printed", "its trace (`prof.export_chrome_trace(\"trace.json\")`)",
    ),
    late(rb"^:\d:\w{1,60}\.\w{1,5} {0,40}: {0,4}\d{1,6} {0,6}: {0,9}\d{1,20} us: ", re.MULTILINE): (
        "HIP's log of its calls (AMD_LOG_LEVEL)", _PROFILED,
    ),
    late(rb"^(?:Dispatch_ID\(\d{1,19}\), GPU_ID\(|Record \[\d{1,19}\], Domain\()", re.MULTILINE): (
        "what rocprofv2 printed", _PROFILED,
    ),
    late(rb"^\d{9,19}:\d{9,19} \d{1,10}:\d{1,10} \w", re.MULTILINE): ("what roctracer printed for rocprof", _PROFILED),
    late(rb"Start_Timestamp\W{1,5}End_Timestamp|BeginNs\W{1,5}EndNs|^\W{0,4}KERNEL_DISPATCH\W", re.MULTILINE): (
        "a table of rocprof, but not as it wrote it", "the names of the columns in the first line, and commas",
    ),
    late(rb"ROCPROFV3 .{0,60}SUMMARY"): ("a table of sums that rocprofv3 printed", _PROFILED),
    late(rb"^0\.1\.? Top (?:Kernels|Stat)\b", re.MULTILINE): ("what rocprof-compute printed (Omniperf)", _PROFILED),
    late(rb"^ {1,6}\d{1,6} [^\n]{0,400}MIOpenDriver ", re.MULTILINE): (
        "a list of commands behind numbers, as of `uniq -c`", "the log as MIOpen printed it",
    ),
    late(rb"^\w{0,60}TunableOp_\w{1,60}[(,]|^reading tuning results from ", re.MULTILINE): (
        "what TunableOp printed, or has not tuned yet", "its file of results (tunableop_results0.csv)",
    ),
    late(rb"^[ \t]{0,40}\S{1,200}[ \t]{1,40}(?:forward|backward): [\d.e+-]{1,20} ms", re.MULTILINE): (
        "Caffe's times of layers without the time and place that begin each line", "the lines as Caffe printed them",
    ),
}  # fmt: skip
"""Text of other programs, what it is, and what to give instead."""
_BEGINS = late(rb"[IWEF]\d{4} |MIOpen")
"""The beginning of a line of Caffe or MIOpen, even if the rest is missing."""
_PREAMBLE = 8 << 20
"""Bytes of other programs' text in front of a log's first line."""
_PLAIN = 10
_BINARY_SHARE = 100
"""A file with more than one NUL in this many bytes is binary; a crash leaves a few in a log."""


def sniff(head: bytes) -> bool:
    """Return whether it is text but not JSON; only reading shows whether it has a known line."""
    is_text = head.count(b"\0") * _BINARY_SHARE <= len(head)
    return is_text and (_JSON.match(head) is None or is_docker_file(head))


def is_log(head: bytes) -> bool:
    """Return whether the beginning has lines of Caffe or MIOpen; in a log they may come later."""
    if b"\x1b" in head:
        head = ANSI.sub(b"", head)
    if any(word in head for word in BLAS_WORDS):
        return True
    return GLOG_HEAD.search(head) is not None or (b"MIOpen" in head and _MIOPEN.search(head) is not None)


def is_log_later(source: Source) -> bool:
    """Return whether a text has such lines, maybe behind much of another program's. It consumes the source."""
    size = 0
    for block in source.blocks():
        size += len(block)
        if is_log(block):
            return True
        if size > _PREAMBLE:
            break
    return False


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the content of the log. Raises `InputError` if no line of it is known."""
    log = _Log(source, options, notes)
    of_writer: dict[int, _Log] = {}
    head = source.head
    blocks = source.blocks_while(lambda: [one.known() for one in of_writer.values() or (log,)])
    if source.companions:
        head = source.companions[0].head
        blocks = chain(*(_ended(older.blocks()) for older in source.companions), blocks)
    numbered = _Numbered(plain_lines(head, blocks), notes)
    while True:
        if numbered.uncut and log.is_between and not of_writer:
            numbered.skip(log.take)
        line = next(numbered, None)
        if line is None:
            break
        if numbered.writer is not None:
            if numbered.writer not in of_writer:
                of_writer[numbered.writer] = _Log(source, options, notes) if of_writer else log
            log = of_writer[numbered.writer]
        log.feed(line, numbered)
    return log.finish(numbered.number) if len(of_writer) < 2 else _together(of_writer, numbered.number)


def _together(of_writer: Mapping[int, _Log], lines: int) -> Records:
    """Join the output of several processes, each read by itself, in the order of the file's lines. Threads with an id
    that several processes use get distinct ids (`PROCESS`). A record without a thread belongs to the only thread of its
    process."""
    made: dict[int, Records] = {}
    for writer, log in of_writer.items():
        try:
            made[writer] = log.finish(lines)
        except InputError:  # one of the ranks printed no known line
            if not made and writer == [*of_writer][-1]:
                raise
    ids = {writer: _threads(records) for writer, records in made.items()}
    counts = Counter(one for own in ids.values() for one in own)

    def of(writer: int, thread: int | None) -> int:
        only = next(iter(ids[writer])) if thread is None and len(ids[writer]) == 1 else thread
        if only is None:
            return writer
        return only if counts[only] == 1 else (writer + 1) * PROCESS + only

    together: Records = [record for records in made.values() for record in records if isinstance(record, Profile)]
    logs: list[FrameworkLog] = []
    libraries: list[MiopenLog] = []
    for writer, records in made.items():
        for record in records:
            if isinstance(record, FrameworkLog):
                events = tuple(replace(one, thread=of(writer, one.thread)) for one in record.events)
                layers = tuple(replace(one, thread=of(writer, one.thread)) for one in record.layers)
                threads = tuple(of(writer, one) for one in record.threads)
                logs.append(replace(record, events=events, layers=layers, threads=threads))
            elif isinstance(record, MiopenLog):
                calls: dict[int, LoggedCall] = {}
                its = tuple(_of_thread(one, partial(of, writer), calls) for one in record.records)
                libraries.append(replace(record, records=its))
    if logs:
        events = tuple(sorted((one for log in logs for one in log.events), key=_line))
        layers = tuple(sorted((one for log in logs for one in log.layers), key=_line))
        net = tuple({one.layer: one for log in logs[::-1] for one in log.net}.values())
        threads = tuple(dict.fromkeys(one for log in logs for one in log.threads))
        together.append(replace(logs[0], events=events, layers=layers, net=net, threads=threads))
    if libraries:
        kinds = Counter[str]()
        for library in libraries:
            kinds.update(dict(library.counts))
        records_of_all = sorted((one for library in libraries for one in library.records), key=_line)
        together.append(replace(libraries[0], records=tuple(records_of_all), counts=tuple(kinds.items())))
    return together


_line = attrgetter("line")


def _threads(records: Records) -> set[int]:
    threads: set[int | None] = set()
    for record in records:
        if isinstance(record, FrameworkLog):
            threads.update(record.threads)
        elif isinstance(record, MiopenLog):
            threads.update(one.thread for one in record.records)
    return {one for one in threads if one is not None}


def _of_thread(
    record: Entry | Command | Message, of: Callable[[int | None], int], calls: dict[int, LoggedCall]
) -> Entry | Command | Message:
    """Return the record with the thread ``of``. ``calls``: the new call of each old one, which entries share."""
    if not isinstance(record, Entry):
        return replace(record, thread=of(record.thread))
    if id(record.call) not in calls:
        calls[id(record.call)] = replace(record.call, thread=of(record.thread))
    return replace(record, call=calls[id(record.call)])


def _ended(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks; the last line gets an end."""
    last = b"\n"
    for last in blocks:
        yield last
    if not last.endswith(b"\n"):
        yield b"\n"


class _Log:
    """Offers each line to the decoders, and joins what they found."""

    def __init__(self, source: Source, options: ReadOptions, notes: Notes) -> None:
        self._source = source
        self._options = options
        self._notes = notes
        self._caffe = CaffeDecoder(source.index, source.name, notes)
        self._miopen = MiopenDecoder(source.index, notes, everything=options.every_message)
        self._blas = BlasDecoder(source.index)
        self._blocks: BlockDecoder | None = None  # until a line of dv/dt
        self._other_programs = OtherPrograms()
        self._profiles: list[Profile] = []
        self._empty_arrays = self._foreign = self._miopen_lines = self._others = self._swallowed = 0
        self._too_long = 0
        # A line of dv/dt that stopped in its middle, and lines that may be its rest.
        self._cut: tuple[int, bytes] | None = None
        self._rest: bytes | None = None
        self._cuts = 0
        self._in_array: Callable[[], int] = int
        self._is_unended = False
        """Whether the last line is known and has no line end."""

    def known(self) -> object:
        """A value that changes with every known line."""
        arrays = len(self._profiles) + self._empty_arrays
        blocks = self._blocks.blocks if self._blocks is not None else 0
        return self._caffe.lines, self._miopen_lines, blocks, self._blas.lines, arrays, self._in_array()

    @property
    def is_between(self) -> bool:
        """Whether the next line can be read by itself: no text of a program and no entry of a call is open."""
        return self._miopen.between and (self._blocks is None or not self._blocks.in_source)

    def take(self, data: bytes, at: int, number: int) -> tuple[int, int, bool]:
        """Take what `MiopenDecoder.take` takes, and between it lines of Caffe and other programs, and empty arrays."""
        while True:
            others = self._others
            at, following, more = self._miopen.take(data, at, number, self._other)
            self._miopen_lines += following - number - (self._others - others)
            if more or self._cut is not None or not self._miopen.between:
                return at, following, more
            if data.startswith(b"[", at):
                if data.startswith(_EMPTY_ARRAY, at):
                    self._empty_arrays += 1
                    at, number = at + len(_EMPTY_ARRAY), following + _EMPTY_ARRAY.count(b"\n")
                    continue
                if _EMPTY_ARRAY.startswith(data[at : at + len(_EMPTY_ARRAY)]):
                    return at, following, True
            end = self._other_programs.until(data, at)
            if end == at or self._miopen.wrapped.ends_before(following) is not None:
                return at, following, False
            lines = data[at:end].split(b"\n")
            if self._caffe.in_net_text:
                for line in lines:
                    is_long = len(line) > LONGEST_LOG_LINE
                    self._too_long += is_long
                    self._foreign += not is_long and not self._caffe.takes_of_net(line)
            else:
                self._foreign += sum(map(bool, map(bytes.strip, lines)))
            at, number = end, following + len(lines) - 1

    def _other(self, number: int, line: bytes) -> bool:
        if self._cut is not None:
            return False
        is_known = self._caffe.again(number, line)
        if not (is_known or MARKER in line or len(glued_parts(line)) > 1):
            is_known = self._caffe.feed(number, line)
        self._others += is_known
        return is_known

    def feed(self, line: bytes, numbered: _Numbered) -> None:
        number = numbered.number
        if self._blocks is not None and self._blocks.in_source:
            self._swallowed += b"] " in line and GLOG_HEAD.search(line) is not None
            self._blocks.feed(number, line)
        elif MARKER in line:
            if self._cut is not None:
                self._mend()
            at = line.find(MARKER)
            glued = GLOG_HEAD.search(line, at + 7) if line.find(b"] ", at + 8) >= 0 else None
            if glued:
                self._hold(number, line[: glued.start()])
                self._log_line(number, line[glued.start() :])
            elif not self._of_dvdt.feed(number, line):
                opens = _ARRAY_OPENS.search(line)
                if opens is None:
                    self._log_line(number, line)
                    return
                if opens.start():
                    self._log_line(number, line[: opens.start()])
                self._array(line[opens.end() :], numbered)
        else:
            if line.startswith(b"[") or self._cut is not None:
                glued = GLOG_HEAD.search(line)
                if glued and glued.start():
                    part = line[: glued.start()]
                    if self._cut is not None and self._rest is None:
                        self._hold(self._cut[0], self._cut[1] + part)  # the rest is cut again
                        line = line[glued.start() :]
                    elif MARKER.startswith(part):
                        self._hold(number, part)
                        line = line[glued.start() :]
            self._log_line(number, line)

    def _refusal(self, lines: int) -> str:
        """Say what is wrong with a text of which no line is known."""
        if self._empty_arrays:
            what = f"{count(self._empty_arrays, 'empty [dv/dt] block')}, and no other line of it is known"
            return f"{what}; expected the calls of the profiled program"
        for pattern, (what, instead) in _OTHERS.items():
            if pattern.search(self._source.head) is not None:
                return f"is {what}; expected {instead}"
        first = "first " if self._source.stopped else ""
        unknown = f"none of its {first}{lines} lines is known" if lines != 1 else "its only line is not known"
        return f"{unknown}; expected a log of MIOpen or Caffe (all formats: docs/inputs.md)"

    def finish(self, lines: int) -> Records:
        notes, place = self._notes, self._source.name
        if self._cut is not None:
            self._mend()
        found = bool(self._caffe.lines or self._miopen_lines)
        if self._blocks is not None:
            text = self._blocks.finish(interleaved=found and not self._cuts)
            if text is not None:
                self._profiles.append(text)
        if self._cuts:
            notes.remark("dv/dt line with a log line in its middle put together (buffered output)", place, self._cuts)
        if self._swallowed:
            notes.add("line like one of the log inside a program's source: skipped", place, self._swallowed)
        if self._too_long:
            notes.add(f"line of the log longer than {LONGEST_LOG_LINE >> 10} KiB: skipped", place, self._too_long)
        if self._empty_arrays:
            notes.remark("empty dv/dt block of a child process: skipped", place, self._empty_arrays)
        gemms = self._blas.finish()
        if not self._profiles and not found and gemms is None:
            raise InputError(f"{place}: {self._refusal(lines)}")
        if self._foreign:
            notes.remark("line of other programs: skipped", place, self._foreign)
        if (self._is_unended or self._miopen.ends_open(lines) or self._caffe.in_benchmark) and not self._source.stopped:
            notes.cut_off(place, f"line {lines}")
        records: Records = [*self._profiles]
        if self._caffe.lines:
            records.append(self._caffe.finish())
        if self._miopen_lines:
            library = self._miopen.finish(self._foreign)
            note_alarms(library, place, notes)
            records.append(library)
        if gemms is not None:
            if gemms.skipped:
                what = "GEMM of a library's log cut off, a group of unequal sizes, or of no known form: left out"
                notes.add(what, place, gemms.skipped)
            records.append(gemms)
        return records

    def _log_line(self, number: int, line: bytes) -> None:
        if len(line) > LONGEST_LOG_LINE:
            self._too_long += 1
            return
        if line == b"\n":
            return  # no record begins, ends or continues with it
        known = False
        for part in glued_parts(line) if b"]" in line else (line,):
            known |= self._one(number, part)
        self._is_unended = not line.endswith(b"\n") and (known or _BEGINS.match(line) is not None)
        if not known and line.strip():
            self._foreign += 1
            if self._cut is not None:
                self._rest = line

    def _one(self, number: int, line: bytes) -> bool:
        """Read a line to which no other line was appended; return whether a decoder knows it."""
        if self._caffe.feed(number, line):
            return True
        known = self._miopen.feed(number, line)
        self._miopen_lines += known
        return known or self._blas.feed(number, line)

    def _hold(self, number: int, part: bytes) -> None:
        """Keep a cut line: standard output is written in blocks of some KB, so a log line may come in between."""
        self._cuts += 1
        self._cut, self._rest = (number, part), None

    def _mend(self) -> None:
        """Join a cut line with its rest, which comes directly before the next line of dv/dt."""
        assert self._cut is not None
        first, part = self._cut
        rest = self._rest
        self._cut = self._rest = None
        if rest is not None:
            self._foreign -= 1
        self._of_dvdt.feed(first, part + (rest or b"\n"))

    @property
    def _of_dvdt(self) -> BlockDecoder:
        from mio2trace.readers.opencl.dvdt import BlockDecoder

        if self._blocks is None:
            self._blocks = BlockDecoder(self._source.index, self._source.name, self._options, self._notes)
        return self._blocks

    def _array(self, first: bytes, numbered: _Numbered) -> None:
        from mio2trace.readers.opencl.dvdt import read_array

        number = numbered.number
        place = f"{self._source.name}:{number}"
        numbered.all_at_once = True
        self._in_array = lambda: numbered.number
        profile = read_array(_array(first, numbered), self._source.index, place, self._options, self._notes)
        self._in_array = int
        numbered.all_at_once = False
        if profile.records:
            self._profiles.append(profile)
        else:
            self._empty_arrays += 1


class _Numbered:
    """Lines with the number of the last one taken, shared by all consumers. If MIOpen has written, the bytes are cut
    into lines one by one (``uncut``), because its decoder may take several lines at once. With ``all_at_once``, later
    blocks are cut into all their lines at once."""

    def __init__(self, blocks: Iterator[bytes], notes: Notes) -> None:
        self._blocks = blocks
        self._notes = notes
        self._lines: Iterator[bytes] = iter(())
        self._data = b""
        self._at = 0
        self._again: list[bytes] = []
        self.number = 0
        self.writer: int | None = None  # the process that printed the last line taken, if there are several
        self.uncut = False
        self.all_at_once = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._again:
            return self._again.pop()
        while True:
            if self.uncut:
                end = self._data.find(b"\n", self._at) + 1
                found = self._data[self._at : end] if end else None
                self._at = end or self._at
            else:
                found = next(self._lines, None)
            if found is None:
                found = self._more()
            if found is not None:
                self.number += 1
                if found.startswith(WRITER):
                    number, _, line = found[1:].partition(WRITER)
                    if number.isdigit() and len(number) < _PLAIN:
                        self.writer, found = int(number), line
                return found

    def skip(self, take: Callable[[bytes, int, int], tuple[int, int, bool]]) -> None:
        """Let ``take`` read the records that it knows at the beginning of the next bytes."""
        more = not self._again and not self._data.startswith(WRITER, self._at)
        while more:
            self._at, following, more = take(self._data, self._at, self.number + 1)
            self.number = following - 1
            more = more and self._read()

    def give_back(self, rest: bytes) -> None:
        """Use ``rest``, the end of a line, as the next line; each of several arrays in it becomes a line."""
        ends = [0, *(closes.end() for closes in _ARRAY_CLOSES.finditer(rest)), len(rest)]
        self._again += [rest[begin:end] for begin, end in pairwise(ends) if rest[begin:end].strip()][::-1]

    def _read(self) -> bool:
        """Add bytes up to a block with a line end; return False at the end of the input."""
        held = [self._data[self._at :]]
        size = len(held[0])
        for block in self._blocks:
            held.append(block)
            if b"\n" in block:
                break
            size += len(block)
            if size > LONGEST_LINE:
                what = f"line longer than {LONGEST_LINE >> 20} MiB cut into several"
                self._notes.add(what, f"line {self.number + 1}")
                held.append(b"\n")
                break
        self._data, self._at = b"".join(held), 0
        if self.uncut:
            self._plain_ends()
        return len(held) > 1

    def _plain_ends(self) -> None:
        """Replace CR LF by LF: for MIOpen's lines they mean the same, and repetitions are found by their bytes."""
        if b"\r" in self._data and b"\r\n" in self._data:  # searching for one byte is ten times as fast
            self._data, self._at = self._data[self._at :].replace(b"\r\n", b"\n"), 0

    def _more(self) -> bytes | None:
        """Continue with the next bytes. Return the last line, if it has no end. Raises StopIteration at the end."""
        if not self._read():
            if not self._data:
                raise StopIteration
            line, self._data = self._data, b""
            return line
        self.uncut = not self.all_at_once and (b"MIOpen" in self._data or MARKER not in self._data)
        if self.uncut:
            self._plain_ends()
        else:
            end = self._data.rfind(b"\n") + 1
            part = self._data[self._at : end]
            self._data, self._at = self._data[max(end, self._at) :], 0
            # a lone carriage return (a progress bar) does not end a line
            lines = part.splitlines(keepends=True) if b"\r" not in part else [x + b"\n" for x in part.split(b"\n")][:-1]
            self._lines = iter(lines)
        return None


def _array(first: bytes, lines: _Numbered) -> Iterator[bytes]:
    """Yield the JSON array between the markers in blocks; the closing marker may follow its last line directly."""
    held: list[bytes] = []
    size = 0
    line = first
    while True:
        if b"[dv/dt]" in line:
            closes = _ARRAY_CLOSES.search(line)
            if closes:
                held.append(line[: closes.start()])
                if line[closes.end() :].strip():
                    lines.give_back(line[closes.end() :])
                break
        held.append(line)
        size += len(line)
        if size > _ARRAY_BLOCK:
            yield b"".join(held)
            held.clear()
            size = 0
        following = next(lines, None)
        if following is None:
            break
        line = following
    yield b"".join(held)


# -- Lines of other programs, skipped many at a time -------------------------------------------------------------------

MARKER = b"[dv/dt]"
_TEXTS = (MARKER, *WORDS, *BLAS_WORDS)
_PATTERNS = (GLOG_HEAD, late(rb"\n(?:" + b"|".join(map(re.escape, BEGINNINGS)) + rb")"))
_FAR = 1 << 62


class OtherPrograms:
    """For bytes in which every requested place is the beginning of a line."""

    def __init__(self) -> None:
        self._data = b""
        self._end = 0
        self._texts: list[int] = []
        self._patterns: list[int] = []

    def until(self, data: bytes, at: int) -> int:
        """Return where the first line from ``at`` on begins that may be one of ours, or that has no end."""
        if data is not self._data:
            self._data = data
            self._end = data.rfind(b"\n") + 1
            self._texts = [-1] * len(_TEXTS)
            self._patterns = [-1] * len(_PATTERNS)
        nearest = self._end
        if not at and data.startswith(BEGINNINGS):
            return at
        texts = self._texts
        for number, place in enumerate(texts):
            if place < at:
                place = data.find(_TEXTS[number], at)
                texts[number] = place = _FAR if place < 0 else place
            if place < nearest:
                nearest = place
        patterns = self._patterns
        for number, place in enumerate(patterns):
            if place < at:  # the beginning follows the end of the line before it
                found = _PATTERNS[number].search(data, max(0, at - 1))
                patterns[number] = place = _FAR if found is None else found.end() - 1
            if place < nearest:
                nearest = place
        return max(at, data.rfind(b"\n", at, nearest) + 1)


# ----------------------------------------------------------------------------------------------------------------------
# Lines without an end: two programs, or two threads, wrote into one file at once, so that one line follows another
# directly.

_END = b"] "
"""The most characters of the head of a glog line."""


def glued_parts(line: bytes) -> list[bytes]:
    """Return the parts of a line: cut where a line of glog begins in it, or a line of MIOpen in one of glog. MIOpen's
    decoder cuts its own lines. The text before the first head may be a prefix, or the rest of any line."""
    first = line.find(_END)
    if first < 0 or (line[1:2].isdigit() and line.find(_END, first + 2) < 0 and b"MIOpen(" not in line):
        return [line]  # at most one head, at the beginning of the line
    if HEAD_ENDS.search(line) is None:
        return [line]
    heads = [head.start() for head in GLOG_HEAD.finditer(line)]
    if not heads or (len(heads) == 1 and not heads[0] and b"MIOpen(" not in line):
        return [line]
    parts = [line[: heads[0]] + b"\n"] if line[: heads[0]].strip() else []
    for begin, end in zip(heads, [*heads[1:], len(line)], strict=True):
        part = line[begin:end]
        inside = next((one.start() for one in PREFIX.finditer(part, part.find(_END) + 2) if one["backend"]), None)
        pieces = [part] if inside is None else [part[:inside], part[inside:]]
        parts += [piece if piece.endswith(b"\n") else piece + b"\n" for piece in pieces]
    return parts
