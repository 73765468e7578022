"""MIOpen's log, 1.0 (2017) to 3.6 (2026): lines in, records out, in one pass (miopen-log.md 2, 3, 7, 8).

    MIOpen(HIP): miopenStatus_t miopenPoolingForward(miopenHandle_t, ...){
    MIOpen(HIP): <TAB>poolDesc = miopenPoolingMax, 3, 3, 0, 0, 2, 2,
    MIOpen(HIP): }
    MIOpen(HIP): Command [Pooling_logging_cmd] ./bin/MIOpenDriver pool ...
    MIOpen(HIP): Info [ConvolutionForward] algo = 0, workspace = 7375872

Every form is told by its own shape, never by an assumed version. The prefix met last is tried first, so that the usual
line costs one search; everything else takes the slow way through one regular expression.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from timeline.model.log import LocalTime
from timeline.model.miopen import Call, Command, Entry, Message, MiopenLog, cut_addresses
from timeline.notes import Notes
from timeline.readers.miopen_messages import KEPT_KINDS, classify

MAX_PARAMS = 16  # miopen-log.md 3.3: never more are printed
_HEX = b"0123456789abcdef"
_DIGITS = _HEX + b","
_NOT_PLAIN = (b"\r", b"\x1b", b"\0")
_NONE = b"\n\n"  # no line has it
_LONGEST = 1 << 14  # bytes of an entry that is waited for
_HISTORY = 1 << 20
_INTERN = 1 << 13  # texts of each kind kept for sharing

_PREFIX = re.compile(
    rb"(?:(?<!\S)(?:\S+ )?(?P<tid>\d{1,10}) )?MIOpen(?P<backend>\((?:HIP|OpenCL)\))?"
    rb"(?:\s+(?P<elapsed>\d{1,12}\.\d{3}))?(?: \((?P<date>\d{4}-[^)]*)\))?: ?"
)
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_LEVEL = re.compile(rb"(?:\w+ )?(Error|Warning|Info2?|Trace|Fatal) \[([^\]]*)\](?: (.*))?$", re.DOTALL)
_COMMAND = re.compile(rb"Command \[([^\]]*)\]\s+(?:\S*/)?MIOpenDriver(?:\.exe)?:?\s+(\S.*)$", re.DOTALL)
_OLD_COMMAND = re.compile(rb"(?:^|[\s:])(miopen\w+): (?:\S*/)?MIOpenDriver(?:\.exe)?:? +(\S.*)$", re.DOTALL)
_BARE_COMMAND = re.compile(rb"^[\s>$#`]*(?:\S*/)?MIOpenDriver(?:\.exe)?:? +([A-Za-z]\w*(?: .*)?)$", re.DOTALL)
_SIGNATURE = re.compile(rb"\s*(?:(?:miopenStatus_t|const\s+char|void|bool|auto|int|size_t)[\s*&]|(?:miopen|std)::)")
_PARAM = re.compile(rb"\s*(?:[A-Za-z_][\w.>()\[\]-]*|\".*?\"|name \+ .*?) =(?:\s|$)")
_RANGE = re.compile(rb"s_api = (\w+)((?: \| .*)?)$", re.DOTALL)
_DEBUG_LAUNCH = re.compile(rb"kernel_name = .*?local_work_dim = \{[^}]*\}")
_DATE = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})")
_WORDS = (b"MIOpen", b"miopen", b"l_name = ", b"s_api = ", b" Verif", b" descr")
_BEGINNINGS = (
    b'{"solution"', b'{"performance"', b"rnn", b"stats: ", b"GPU Kernel", b"PRNG seed", b"Warm-up: ", b"- id: ",
    b"SetTensor", b"CopyTensor", b"ScaleTensor",
)  # fmt: skip
_DRIVER_OUTPUT = re.compile(
    rb"^(?:MIOpen (?:Forward|Backward)|GPU Kernel|stats: |PRNG seed|Warm-up: |- id: \d|.* Verif(?:y|ies) )"
)
# Prints of some builds, "descritor" as they spell it (miopen-log.md 2.3)
_TENSOR_PRINT = re.compile(rb"^(?:(?:Set|Copy|Scale)Tensor|(?:src |dst )?(?:real|flat) descrip?tor: [\d, ]+)\s*$")
_CLOSE = frozenset((b"}\n", b"}\r\n", b"}"))
_NOT_KEPT = re.compile(
    r"miopen(?:Destroy\w*|Get\w*|Query\w*|EnableProfiling|\w*GetWorkSpaceSize\w*|\w*WorkSpaceSize|\w*WorkspaceSize\w*"
    r"|Create\w*Descriptor\w*|CreateOperatorArgs|Create(?:WithStream)?|Derive\w*|SetStream|SetAllocator"
    r"|\w*SolutionCount\w*|(?:Load|Save)Solution|Init\w*Descriptor"
    r"|Set\w*(?:Pooling|Activation|LRN|RNN|Dropout|CTC|Convolution|ReduceTensor)\w*)"
)


class _Unit(msgspec.Struct):
    """Text met before, with what to do when it comes again: a line that tells the same, or an entry.

    ``cut`` takes the addresses out of an entry: text, digits, text, ... ; ``text`` holds the texts alone (one of them
    when there is no address). ``size`` in bytes. What is kept is one of ``call``, ``command`` and ``message``; the
    latter two hold any line's number. ``shape`` and ``dtype`` are those of a Set call, which is worth keeping when it
    gives a shape another type than the call before. ``after`` is the place in the history after its last appearance.
    ``taken`` counts.
    """

    count: str
    text: tuple[bytes, ...]
    size: int
    thread: int | None
    lines: int = 1
    cut: Callable[[bytes, int], tuple[bytes, ...]] | None = None
    call: Call | None = None
    command: Command | None = None
    message: Message | None = None
    shape: bytes = b""
    dtype: bytes = b""
    after: int = 0
    taken: int = 0


class _Header(msgspec.Struct, kw_only=True):
    """What a header line says; learned once per distinct line, to take the whole entry at its next appearance.

    ``prefix`` begins the line. ``units`` are the entries met, by their text with the addresses cut out and their
    lengths; None for one that must be read line by line.
    """

    api: str
    nested: bool = False
    keep: bool = True
    sets_type: bool = False
    prefix: bytes = _NONE
    thread: int | None = None
    units: dict[bytes, _Unit | None] = {}


class _Open(msgspec.Struct):
    """An entry under way. ``raw`` is the header's line, ``lines`` the parameter lines without prefix, with their ends.

    ``bare`` is None until the first parameter shows the layout.
    """

    header: _Header
    raw: bytes
    bare: bool | None
    line: int
    last: int
    stamp: LocalTime | None
    elapsed_ns: int | None
    lines: list[bytes]


def parse_range(text: str) -> tuple[str, bytes] | None:
    """(api, body) of a ROCTX range text ``s_api = miopenX | name = value | ...`` (miopen-log.md 9.4)."""
    found = _RANGE.search(text.encode())
    if found is None:
        return None
    parts = [part for part in found[2].split(b" | ") if part.strip(b" |")]
    return _api_name(found[1]), b"".join(part.strip(b" |") + b"\n" for part in parts)


def _api_name(name: bytes) -> str:
    return name.decode(errors="replace").removesuffix("_impl")


def _is_of_interest(line: bytes) -> bool:
    """Whether a line outside of any entry may be one of ours."""
    return line.startswith(_BEGINNINGS) or any(word in line for word in _WORDS)


def _type_and_shape(body: bytes) -> tuple[bytes, bytes]:
    """The lines of a Set call that give the type and the shape; none for a call of another form."""
    old, _, rest = body.partition(b"\n")
    dtype, _, shape = rest.partition(b"\n")
    if not old.lstrip().startswith(b"tensorDesc") or not dtype.lstrip().startswith(b"dataType"):
        return b"", b""
    return dtype, shape


def _stamp(date: bytes | None) -> LocalTime | None:
    found = _DATE.match(date) if date else None
    if found is None:
        return None
    year, month, day, hour, minute, second, milli = (int(part) for part in found.groups())
    return LocalTime(year, month, day, ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + milli * 1_000_000)


class MiopenDecoder:
    """Takes the lines of a log, yields the `MiopenLog` at the end. Memory grows with the records kept only."""

    def __init__(self, source: int, notes: Notes) -> None:
        self._source = source
        self._notes = notes
        self._records: list[Entry | Command | Message] = []
        self._counts: Counter[str] = Counter()
        self._known: dict[bytes, _Header | _Unit] = {}  # by the whole line
        self._names: set[bytes] = set()
        self._calls: dict[Call, Call] = {}
        self._history: list[_Unit] = []
        self._place = 0  # in the history: what comes next if all goes on as then
        self._types: dict[bytes, bytes] = {}  # the type last given to a shape, both as logged
        self._texts: dict[bytes, str] = {}
        self._kinds: dict[tuple[bytes, bytes, bytes], str] = {}
        self._prefix = _NONE  # of the last prefixed line; nothing has it yet
        self._thread: int | None = None
        self._stamp: LocalTime | None = None
        self._elapsed: int | None = None
        self._entry: _Open | None = None  # of the current thread
        self._opens: dict[int | None, _Open] = {}
        self._wrapped: list[bytes] = []  # a header that lacks its brace so far
        self._wrapped_line = 0
        self._wrapped_bare: bool | None = None
        self._last_key = ""

    # The two ways in

    def feed(self, number: int, line: bytes) -> bool:
        """Take line ``number`` (from 1); False when it is no part of a MIOpen record."""
        head, sep, rest = line.rpartition(self._prefix)
        if sep and not head:
            entry = self._entry
            if entry is None:
                known = self._known.get(line)
                if isinstance(known, _Header) and not self._wrapped and known.thread == self._thread:
                    self._begin(known, line, None, number)
                    return True
            elif rest[:1] == b"\t" and len(entry.lines) < MAX_PARAMS:
                entry.lines.append(rest[1:])
                entry.last = number
                return True
            elif rest in _CLOSE:
                self._close(entry, number)
                return True
            glued = b"MIOpen" in rest and _PREFIX.search(rest)
            plain = not glued and b"\x1b" not in rest and b"\r" not in rest
            # without a backend the prefix is a mere word
            if plain and not self._wrapped and (b"MIOpen(" in self._prefix or self._is_body(rest)):
                return self._body(number, rest.rstrip(b"\n"), line)
        elif not sep and self._entry is not None and self._entry.bare:
            entry = self._entry
            if rest in _CLOSE:
                self._close(entry, number)
                return True
            if rest.partition(b" = ")[0] in self._names and len(entry.lines) < MAX_PARAMS:
                entry.lines.append(rest)
                entry.last = number
                return True
        return self._slow(number, line)

    def take(self, data: bytes, at: int, number: int) -> tuple[int, int, bool]:
        """Take the records from ``data[at:]``, line ``number``, as long as they are like earlier ones.

        The same as `feed` line by line, and many times faster: iterations repeat, so what followed the last time is
        tried first. Returns the place and the line of the first record that is new, and whether it is an entry
        whose end may be in the bytes to come.
        """
        if self._opens or self._wrapped:
            return at, number, False
        records, types = self._records, self._types
        stamp, elapsed = self._stamp, self._elapsed
        history, place, thread = self._history, self._place, self._thread
        until, met = len(data), len(history)
        while True:
            unit: _Unit | None = None
            addresses = b""
            if place < met:
                unit = history[place]
                if unit.cut is None:
                    if not data.startswith(unit.text[0], at):
                        unit = None
                elif at + unit.size <= until:
                    fields = unit.cut(data, at)
                    if fields[::2] == unit.text:
                        addresses = b",".join(fields[1::2])
                        if addresses.translate(None, _DIGITS):
                            unit = None
                    else:
                        unit = None
                else:
                    unit = None
            if unit is None:
                unit, addresses, more = self._seen(data, at)
                if unit is None:
                    self._place = place
                    return at, number, more
                place = unit.after
            else:
                place += 1
            if met == _HISTORY:
                history.clear()
                met = 0
            history.append(unit)
            met += 1
            unit.after = met
            unit.taken += 1
            if unit.thread != thread:
                thread = self._thread = unit.thread
            if unit.call is not None:
                if not unit.shape:
                    records.append(Entry(number, unit.call, addresses, stamp, elapsed))
                elif types.get(unit.shape) != unit.dtype:
                    types[unit.shape] = unit.dtype
                    records.append(Entry(number, unit.call, addresses, stamp, elapsed))
            elif unit.command is not None:
                one = unit.command
                records.append(Command(one.source, number, one.tag, one.text, one.thread, stamp, elapsed))
            elif unit.message is not None:
                told = unit.message
                if told.kind != "key" or self._is_new_key(told.text):
                    records.append(
                        Message(
                            told.source, number, told.level, told.function, told.text, told.kind, told.thread, stamp,
                            elapsed,
                        )
                    )  # fmt: skip
            at += unit.size
            number += unit.lines

    def _seen(self, data: bytes, at: int) -> tuple[_Unit | None, bytes, bool]:
        """What begins at ``data[at]``, if it was met before; the addresses; whether it may be so with more bytes."""
        end = data.find(b"\n", at) + 1
        known = self._known.get(data[at:end]) if end else None
        if not isinstance(known, _Header):
            return known, b"", not end
        # the same header has parameters with and without prefix, as the version is (1.2-1.8, 2.0)
        prefixed = data.startswith(known.prefix, end)
        close = known.prefix + b"}\n" if prefixed else b"}\n"
        mark = close[-4:] if prefixed else b"\n}\n"
        stop = data.find(mark, end - 1, at + _LONGEST)
        if stop < 0:
            return None, b"", len(data) - at < _LONGEST
        stop += len(mark)
        first, *rest = data[at:stop].split(b"0x")
        key, digits = first, []
        for part in rest:
            tail = part.lstrip(_HEX)
            length = len(part) - len(tail)
            if part[:1] == b"0" or not length:
                return None, b"", False  # null is no address
            digits.append(part[:length])
            key += b"0x%d " % length + tail
        if key not in known.units:
            if len(known.units) > _INTERN:
                return None, b"", False
            unit = self._unit(known, data[at:stop], end - at, close, digits)
            if unit is None and not prefixed:
                return None, b"", False  # the names of its parameters may be known the next time
            known.units[key] = unit
        return known.units[key], b",".join(digits), False

    def _settle(self, header: _Header) -> None:
        """Count what was taken."""
        for unit in header.units.values():
            if unit is not None:
                self._counts[unit.count] += unit.taken
                unit.taken = 0

    def _unit(self, header: _Header, raw: bytes, end: int, close: bytes, digits: list[bytes]) -> _Unit | None:
        """The entry ``raw``, whose header has ``end`` bytes; None when its lines are not plain."""
        text = raw[end:].removesuffix(close)
        inner = text.splitlines(keepends=True)
        if len(text) == len(raw) - end or len(inner) > MAX_PARAMS or any(sign in text for sign in _NOT_PLAIN):
            return None
        if text and not text.endswith(b"\n"):
            return None  # the closing line is glued to another
        if close == b"}\n":
            if not {line.partition(b" = ")[0] for line in inner} <= self._names or _PREFIX.search(text):
                return None
            body = text
        else:
            # every line begins with the prefix, and has no second one
            parts = (b"\n" + text).split(b"\n" + header.prefix + b"\t")
            body = b"\n".join(parts[1:])
            if len(parts) != len(inner) + 1 or parts[0] or len(_PREFIX.findall(text)) != len(inner):
                return None
        template, addresses = cut_addresses(body)
        if addresses != b",".join(digits):
            return None
        unit = _Unit("entry " + header.api, (raw,), len(raw), header.thread, len(inner) + 2)
        if digits:
            pattern, rest = [], raw
            for one in digits:
                before, _, rest = rest.partition(b"0x" + one)
                pattern.append(f"{len(before) + 2}s{len(one)}s")
            unit.cut = struct.Struct("".join(pattern) + f"{len(rest)}s").unpack_from
            unit.text = unit.cut(raw, 0)[::2]
        if header.keep:
            unit.call = self._call(header, template, len(inner) + 2, True)
        if header.keep and header.sets_type:
            unit.dtype, unit.shape = _type_and_shape(body)
        return unit

    def _call(self, header: _Header, template: bytes, lines: int, complete: bool) -> Call:
        """The object that equal calls share."""
        call = Call(
            source=self._source,
            api=header.api,
            template=template,
            lines=lines,
            thread=header.thread,
            nested=header.nested or template.startswith((b'"', b"name + ")),
            complete=complete,
        )
        if len(self._calls) > _INTERN:
            self._calls.clear()
        return self._calls.setdefault(call, call)

    def decode(self, blocks: Iterable[bytes]) -> MiopenLog:
        """Decode a log that holds nothing but MIOpen's lines and lines to pass over, in pieces of any size."""
        number, rest = 1, b""
        for block in blocks:
            number, rest = self._decode(number, rest + block)
        *whole, last = rest.split(b"\n")
        for line in [*(one + b"\n" for one in whole), last]:
            if line:
                self.feed(number, line)
            number += 1
        return self.finish()

    def _decode(self, number: int, data: bytes) -> tuple[int, bytes]:
        """The number of the next line, and what of ``data`` is not a whole record."""
        at = 0
        while True:
            at, number, more = self.take(data, at, number)
            end = data.find(b"\n", at) + 1
            if more or not end:
                return number, data[at:]
            self.feed(number, data[at:end])
            at = end
            number += 1

    def finish(self, foreign: int = 0) -> MiopenLog:
        """The log. Entries still open are kept, marked incomplete. ``foreign``: lines that no decoder knew."""
        if self._wrapped:
            self._give_up_header()
        for entry in list(self._opens.values()):
            self._cut(entry)
        for header in self._known.values():
            if isinstance(header, _Header):
                self._settle(header)
            else:
                self._counts[header.count] += header.taken
                header.taken = 0
        stray = self._counts.get("stray", 0)
        if stray:
            self._notes.remark("line with MIOpen's prefix of an unknown form", count=stray)
        other = self._counts.get("level other", 0)
        if other:
            self._notes.remark("MIOpen message of an unknown kind", count=other)
        return MiopenLog(
            source=self._source,
            records=tuple(self._records),
            counts=tuple(sorted(self._counts.items())),
            foreign=foreign,
        )

    # Lines

    def _slow(self, number: int, line: bytes) -> bool:
        if not self._wrapped and not self._opens and not _is_of_interest(line):
            return False
        if b"\x1b" in line:
            line = _ANSI.sub(b"", line)
        taken = False
        for part in line.rstrip(b"\r\n").split(b"\r"):
            taken |= self._pieces(number, part, line)
        return taken

    def _pieces(self, number: int, text: bytes, raw: bytes) -> bool:
        """One line may hold several records glued together: cut it at every prefix."""
        found = [match for match in _PREFIX.finditer(text) if match["backend"] or self._is_body(text[match.end() :])]
        if not found:
            return self._without_prefix(number, text, raw)
        before = text[: found[0].start()]
        if before.strip() and (self._wrapped or (self._entry is not None and self._entry.bare is not False)):
            self._without_prefix(number, before, b"")
        ends = [match.start() for match in found[1:]] + [len(text)]
        for match, end in zip(found, ends, strict=True):
            thread = int(match["tid"]) if match["tid"] else None
            self._stamp = _stamp(match["date"])
            if match["elapsed"]:
                self._elapsed = (self._elapsed or 0) + round(float(match["elapsed"]) * 1_000_000)
            if thread != self._thread:
                self._thread = thread
                self._entry = self._opens.get(thread)
            steady = not match["elapsed"] and not match["date"] and len(found) == 1 and match[0].endswith(b" ")
            self._prefix = text[: match.end()] if steady else _NONE
            self._body(number, text[match.end() : end], raw if steady else b"")
        return True

    def _is_body(self, text: bytes) -> bool:
        """Whether this can follow a prefix: needed where the prefix is the bare word."""
        return bool(
            text[:1] == b"\t" or text.strip() == b"}" or _LEVEL.match(text) or text.startswith(b"Command [")
            or (b"(" in text and _SIGNATURE.match(text)) or (self._opens and _PARAM.match(text))
        )  # fmt: skip

    def _body(self, number: int, body: bytes, raw: bytes) -> bool:
        """What follows a prefix; ``raw`` is the line when it holds nothing else."""
        if self._wrapped:
            self._give_up_header()
        entry = self._entry
        if entry is not None:
            stripped = body.strip()
            if stripped == b"}":
                self._close(entry, number)
                return True
            if _PARAM.match(body) and len(entry.lines) < MAX_PARAMS:
                self._append(entry, number, body.lstrip())
                return True
        found = _LEVEL.match(body)
        if found:
            self._message(number, found[1], found[2], found[3] or b"", raw)
            return True
        found = _COMMAND.match(body)
        if found:
            tag, command = found[1].decode(errors="replace"), found[2].strip().decode(errors="replace")
            if raw and raw.startswith(self._prefix) and len(self._known) < _INTERN:
                self._known.setdefault(raw, self._command_unit(raw, tag, command, self._thread))
            self._add_command(number, tag, command, self._thread)
        elif b"(" in body and (_SIGNATURE.match(body) or body.rstrip().endswith(b"{")):
            self._header(number, body, raw, bare=None)
        elif _PARAM.match(body) and entry is None:
            # the log starts inside an entry
            self._append(self._begin(_Header(api="", thread=self._thread), b"", None, number), number, body.lstrip())
        elif body.strip() == b"}":
            self._counts["brace alone"] += 1
        elif body.strip():
            self._counts["stray"] += 1
        return True

    def _without_prefix(self, number: int, text: bytes, raw: bytes) -> bool:
        if self._wrapped:
            self._wrapped.append(text)
            if self._unwrap():
                return True
        entry = self._entry
        if entry is not None and entry.lines and b"ReduceTensor Descriptor" in entry.lines[-1]:
            # the one value of several lines (miopen-log.md 4.6): ends with an empty line
            if re.match(rb"\s*[A-Z][\w ]* : -?\d+\s*$", text):
                entry.lines[-1] = entry.lines[-1].rstrip(b"\n") + b"; " + text.strip() + b"\n"
                entry.last = number
                return True
            if not text.strip():
                entry.last = number
                return True
        found = _OLD_COMMAND.search(text)
        if found:
            tag, command = found[1].decode(), found[2].strip().decode(errors="replace")
            if raw and len(self._known) < _INTERN:
                self._known.setdefault(raw, self._command_unit(raw, tag, command, None))
            self._add_command(number, tag, command, None)
            return True
        found = _BARE_COMMAND.match(text)
        if found:
            self._add_command(number, "", found[1].strip().decode(errors="replace"), None)
            return True
        if b"kernel_name = " in text and b"local_work_dim = " in text:
            for launch in _DEBUG_LAUNCH.findall(text):
                self._add_message(number, "Debug", "run", launch.rpartition(b"kernel_name = ")[2], "launch")
            return True
        if entry is not None and entry.bare is not False and (entry.bare or not entry.lines):
            if text.strip() == b"}":
                entry.bare = True
                self._close(entry, number)
                return True
            if _PARAM.match(text) and len(entry.lines) < MAX_PARAMS:
                entry.bare = True
                self._names.add(text.strip().partition(b" =")[0])
                self._append(entry, number, text.lstrip())
                return True
        if text.startswith((b'{"solution"', b'{"performance"')):
            self._add_message(number, "Performance", "", text, "performance")
            return True
        if text.startswith(b"MIOpen Error: "):
            self._add_message(number, "Error", "", text[14:], "error")
            return True
        if _DRIVER_OUTPUT.match(text):
            self._add_message(number, "Driver", "MIOpenDriver", text, "driver")
            return True
        if text.startswith(b"rnn") and b" -n " in text and b" -k " in text:
            self._counts["rnn command repeated on standard output"] += 1
            return True
        if _TENSOR_PRINT.match(text):
            self._counts["line tensor print"] += 1
            return True
        ranged = _RANGE.search(text)
        if ranged:
            decoded = parse_range(text.decode(errors="replace"))
            if decoded is not None:
                api, body = decoded
                self._finish(_Header(api=api), number, number, body, True)
                return True
        if b"miopen" in text and b"(" in text and _SIGNATURE.match(text):
            self._header(number, text, raw, bare=True)
            return True
        return False

    # Entries

    def _header(self, number: int, text: bytes, raw: bytes, bare: bool | None) -> None:
        end = text.rfind(b"{")
        if end < 0:
            self._wrapped = [text]
            self._wrapped_line = number
            self._wrapped_bare = bare
            return
        if text[end + 1 :].strip():
            raw = b""
        words = text.partition(b"(")[0].split()
        if not words:
            self._counts["stray"] += 1
            return
        name = words[-1].lstrip(b"*&")
        scope, _, last = name.rpartition(b"::")
        api = _api_name(last)
        nested = bool(scope) and not api.startswith("miopen")
        keep = nested or not _NOT_KEPT.fullmatch(api)
        sets_type = api.startswith("miopenSet") and "TensorDescriptor" in api and "Problem" not in api
        prefix = self._prefix if raw and bare is None else _NONE
        header = _Header(api=api, nested=nested, keep=keep, sets_type=sets_type, prefix=prefix, thread=self._thread)
        self._begin(header, raw, bare, number)

    def _begin(self, header: _Header, raw: bytes, bare: bool | None, number: int) -> _Open:
        if self._entry is not None:
            self._cut(self._entry)
        entry = _Open(header, raw, bare, number, number, self._stamp, self._elapsed, [])
        self._entry = self._opens[self._thread] = entry
        return entry

    def _append(self, entry: _Open, number: int, line: bytes) -> None:
        entry.lines.append(line + b"\n")
        entry.last = number

    def _unwrap(self) -> bool:
        """Put a wrapped header together once its brace has come."""
        text = b"".join(self._wrapped)
        if b"{" in self._wrapped[-1]:
            self._wrapped = []
            self._header(self._wrapped_line, text, b"", self._wrapped_bare)
            return True
        if len(self._wrapped) > 6 or len(text) > 4000:
            self._give_up_header()
            return False
        return True

    def _give_up_header(self) -> None:
        """A header whose brace never came: what is there is kept."""
        text = b"".join(self._wrapped)
        self._wrapped = []
        self._header(self._wrapped_line, text + b"{", b"", False)
        if self._entry is not None:
            self._cut(self._entry)

    def _close(self, entry: _Open, number: int) -> None:
        self._opens.pop(self._thread, None)
        self._entry = None
        header = entry.header
        if entry.raw and b"\r" not in entry.raw and len(self._known) < _INTERN:
            self._known.setdefault(entry.raw, header)
        self._finish(header, entry.line, number, b"".join(entry.lines), True, entry)

    def _cut(self, entry: _Open) -> None:
        """An entry whose closing brace never came."""
        self._opens.pop(entry.header.thread, None)
        if entry is self._entry:
            self._entry = None
        self._counts["cut entry"] += 1
        self._notes.add("MIOpen entry cut off", f"line {entry.line}")
        self._finish(entry.header, entry.line, entry.last, b"".join(entry.lines), False, entry)

    def _finish(
        self, header: _Header, line: int, end: int, body: bytes, complete: bool, entry: _Open | None = None
    ) -> None:
        self._counts["entry " + header.api] += 1
        if header.keep and not (header.sets_type and complete and self._type_is_known(body)):
            stamp, elapsed = (entry.stamp, entry.elapsed_ns) if entry is not None else (None, None)
            self._keep(header, line, end, body, stamp, elapsed, complete and bool(header.api))

    def _type_is_known(self, body: bytes) -> bool:
        """Whether a Set call gives a shape the type that the last such call gave it: then it tells nothing new."""
        dtype, shape = _type_and_shape(body)
        if not shape or self._types.get(shape) == dtype:
            return bool(shape)
        if len(self._types) > _INTERN:
            self._types.clear()
        self._types[shape] = dtype
        return False

    def _keep(
        self,
        header: _Header,
        line: int,
        end: int,
        body: bytes,
        stamp: LocalTime | None = None,
        elapsed_ns: int | None = None,
        complete: bool = True,
    ) -> None:
        template, addresses = cut_addresses(body)
        call = self._call(header, template, end - line + 1, complete)
        self._records.append(Entry(line, call, addresses, stamp, elapsed_ns))

    # Commands and messages

    def _add_command(self, number: int, tag: str, text: str, thread: int | None) -> None:
        self._counts["command " + text.partition(" ")[0]] += 1
        self._records.append(Command(self._source, number, tag, text, thread, self._stamp, self._elapsed))

    def _command_unit(self, raw: bytes, tag: str, text: str, thread: int | None) -> _Unit:
        command = Command(self._source, 0, tag, text, thread)
        return _Unit("command " + text.partition(" ")[0], (raw,), len(raw), thread, command=command)

    def _message(self, number: int, level: bytes, tag: bytes, text: bytes, raw: bytes) -> None:
        key = (level, tag, text)
        kind = self._kinds.get(key)
        if kind is None:
            kind = classify(level.decode(), tag.decode(errors="replace"), text.decode(errors="replace"))
            if len(self._kinds) < _INTERN:
                self._kinds[key] = kind
        self._counts["level " + kind] += 1
        if kind in KEPT_KINDS:
            self._add_message(number, level.decode(), tag.decode(errors="replace"), text, kind, raw)
        elif raw and len(self._known) < _INTERN and raw.startswith(self._prefix):
            self._known.setdefault(raw, _Unit("level " + kind, (raw,), len(raw), self._thread))

    def _is_new_key(self, text: str) -> bool:
        """Whether a line looks for another key than the line before: every database is asked for the same one."""
        found = re.search(r"[Kk]ey:? (\S+)", text)
        if found is None or found[1] == self._last_key:
            return False
        self._last_key = found[1]
        return True

    def _add_message(self, number: int, level: str, tag: str, text: bytes, kind: str, raw: bytes = b"") -> None:
        content = self._texts.get(text)
        if content is None:
            content = text.decode(errors="replace")
            if len(self._texts) < _INTERN:
                self._texts[text] = content
        if level in ("Driver", "Performance", "Debug") or (level == "Error" and not tag):
            self._counts["line " + kind] += 1
        message = Message(
            source=self._source,
            line=number,
            level=level,
            function=tag,
            text=content,
            kind=kind,
            thread=self._thread,
            stamp=self._stamp,
            elapsed_ns=self._elapsed,
        )
        if raw and len(self._known) < _INTERN and raw.startswith(self._prefix):
            self._known.setdefault(raw, _Unit("level " + kind, (raw,), len(raw), self._thread, message=message))
        if kind != "key" or self._is_new_key(content):
            self._records.append(message)
