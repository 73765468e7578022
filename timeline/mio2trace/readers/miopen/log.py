"""MIOpen's log, 1.0 (2017) to 3.6 (2026): lines in, records out, in one pass (miopen-log.md 2, 3, 7, 8).

    MIOpen(HIP): miopenStatus_t miopenPoolingForward(miopenHandle_t, ...){
    MIOpen(HIP): <TAB>poolDesc = miopenPoolingMax, 3, 3, 0, 0, 2, 2,
    MIOpen(HIP): }
    MIOpen(HIP): Command [Pooling_logging_cmd] ./bin/MIOpenDriver pool ...
    MIOpen(HIP): Info [ConvolutionForward] algo = 0, workspace = 7375872

Every form is told by its own shape, never by an assumed version. The prefix met last is tried first, so that the usual
line costs one search; everything else takes the slow way through one regular expression. What was met before is taken
in larger pieces (`mio2trace.readers.miopen.replay`).
"""

from __future__ import annotations

from collections.abc import Iterable

from mio2trace.model.choices import solver_record
from mio2trace.model.miopen import Command, Message, MiopenLog
from mio2trace.notes import Notes
from mio2trace.readers.miopen.entries import Entries
from mio2trace.readers.miopen.lines import (
    ANSI,
    BARE_COMMAND,
    CLOSE,
    COMMAND,
    DRIVER_OUTPUT,
    LEVEL,
    MAX_PARAMS,
    MAY_BE_PART,
    OLD_COMMAND,
    PARAM,
    PERFORMANCE,
    PREFIX,
    SIGNATURE,
    TENSOR_PRINT,
    debug_launches,
    failure,
    is_of_interest,
    parse_range,
    stamp_of,
)
from mio2trace.readers.miopen.messages import KEPT_KINDS, classify
from mio2trace.readers.miopen.records import INTERN, NO_PREFIX, Collected, Header, command_kind, key_of
from mio2trace.readers.miopen.replay import Other, Replay, nothing
from mio2trace.readers.miopen.timed import TimedPrefixes, Untimed, nanoseconds
from mio2trace.readers.miopen.wrapped import WrappedCommands

_ALL_ZERO = bytes(b"0"[0] if byte in b"123456789" else byte for byte in range(256))
"""What a text tells does not depend on its digits."""

_LONGEST_HEAD = 1024
"""Bytes after a prefix that tell whether it is one: a line may hold thousands of its words."""


class MiopenDecoder:
    """Takes the lines of a log, yields the `MiopenLog` at the end. Memory grows with the records kept only.

    ``everything``: keep also the records that say nothing about an operation.
    """

    def __init__(self, source: int, notes: Notes, *, everything: bool = False) -> None:
        self._notes = notes
        self._out = Collected(source, everything=everything)
        self._names: set[bytes] = set()
        self._replay = Replay(self._out, self._names)
        self._texts: dict[bytes, str] = {}
        self._kinds: dict[tuple[bytes, bytes, bytes], str] = {}
        self._prefix = NO_PREFIX  # of the last prefixed line; nothing has it yet
        self._plain = NO_PREFIX  # the last prefix without a time
        self._timed = False
        self._timed_prefixes = TimedPrefixes()
        self._view: Untimed | None = None
        self._entries = Entries(self._out, self._replay, notes)
        self.wrapped = WrappedCommands(self._out)

    def feed(self, number: int, line: bytes) -> bool:
        """Take line ``number`` (from 1); False when it is no part of a MIOpen record."""
        if line.endswith(b"\r\n"):
            line = line.rstrip(b"\r\n") + b"\n"
        prefix, whole, out = self._prefix, line, self._out
        stamp, elapsed = out.stamp, out.elapsed
        if self._timed:
            timed = self._timed_prefixes.match(self._plain[:-2], line)
            if timed is not None:
                prefix = self._plain
                line = prefix + line[timed.end() :]
                out.stamp = stamp_of(timed[2])
                if timed[1]:
                    out.elapsed = (elapsed or 0) + nanoseconds(timed[1])
        head, sep, rest = line.rpartition(prefix)
        if sep and not head:
            entry = self._entries.current
            if entry is None:
                known = self._replay.header(line)
                if known is not None and not self._entries.wrapped and known.thread == self._entries.thread:
                    self._entries.begin(known, line, None, number)
                    return True
            elif rest[:1] == b"\t" and len(entry.lines) < MAX_PARAMS:
                entry.lines.append(rest[1:])
                entry.last = number
                return True
            elif rest in CLOSE:
                self._entries.close(entry, number)
                return True
            glued = b"MIOpen" in rest and PREFIX.search(rest)
            plain = not glued and b"\x1b" not in rest and b"\r" not in rest
            # without a backend the prefix is a mere word
            if plain and not self._entries.wrapped and (b"MIOpen(" in prefix or self._is_body(rest)):
                return self._body(number, rest.rstrip(b"\n"), line)
        elif not sep and self._entries.current is not None and self._entries.current.bare:
            entry = self._entries.current
            if rest in CLOSE:
                self._entries.close(entry, number)
                return True
            name, _, value = rest.partition(b" = ")
            if name in self._names and len(entry.lines) < MAX_PARAMS and b" = " not in value and b"}" not in value:
                entry.lines.append(rest)
                entry.last = number
                return True
        out.stamp, out.elapsed = stamp, elapsed
        return self._slow(number, whole)

    def take(self, data: bytes, at: int, number: int, other: Other = nothing) -> tuple[int, int, bool]:
        """Take the records from ``data[at:]``, line ``number``, as long as they are like earlier ones.

        The same as `feed` line by line, and many times faster. ``other`` takes the lines between them that begin like
        glog's, and returns whether it did. Returns the place and the line of the first record that is new, and whether
        it is an entry whose end may be in the bytes to come.
        """
        if not self.between:
            return at, number, False
        if not self._timed or self._timed_prefixes.pattern is None:
            at, number, thread, more = self._replay.take(data, at, number, self._entries.thread, other)
            self._turned_to(thread)
            return at, number, more
        view, out = self._view, self._out
        if view is None or not view.holds(data, at):
            view = self._view = Untimed(self._timed_prefixes.pattern, data, at, number)
        view.begin(number, out.stamp, out.elapsed)
        out.clock = view.clock
        place, number, thread, more = self._replay.take(
            view.plain, view.inside(at), number, self._entries.thread, other
        )
        self._turned_to(thread)
        out.clock = None
        out.stamp, out.elapsed = view.clock(number - 1)
        return view.outside(place), number, more

    @property
    def between(self) -> bool:
        """Whether no entry is under way, so that a line is told by itself."""
        return not self._entries.opens and not self._entries.wrapped

    def _turned_to(self, thread: int | None) -> None:
        """The thread of the last line taken; the prefix of the last line fed may be another one's."""
        if thread != self._entries.thread:
            self._entries.thread = thread
            self._prefix = self._plain = NO_PREFIX

    def decode(self, blocks: Iterable[bytes]) -> MiopenLog:
        """Decode a log that holds nothing but MIOpen's lines and lines to pass over, in pieces of any size."""
        number, rest = 1, b""
        for block in blocks:
            number, rest = self._decode(number, (rest + block).replace(b"\r\n", b"\n"))
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
        self._entries.finish()
        self._replay.settle()
        counts = self._out.counts
        if stray := counts.get("stray", 0):
            self._notes.remark("line with MIOpen's prefix of an unknown form", count=stray)
        other = counts.get("level other", 0)
        if other:
            self._notes.remark("MIOpen message of an unknown kind", count=other)
        return MiopenLog(
            source=self._out.source,
            records=tuple(self._out.records),
            counts=tuple(sorted(counts.items())),
            foreign=foreign,
        )

    # Lines

    def _slow(self, number: int, line: bytes) -> bool:
        may_be_ours = self._entries.opens and MAY_BE_PART.search(line)
        if not may_be_ours and not self._entries.wrapped and not is_of_interest(line):
            return self.wrapped.takes(number, line)
        if b"\x1b" in line:
            line = ANSI.sub(b"", line)
        taken = False
        for part in line.rstrip(b"\r\n").split(b"\r"):
            taken |= self._pieces(number, part, line)
        return taken

    def _pieces(self, number: int, text: bytes, raw: bytes) -> bool:
        """One line may hold several records glued together: cut it at every prefix."""
        found = b"MIOpen" in text and [
            match
            for match in PREFIX.finditer(text)
            if match["backend"] or self._is_body(text[match.end() : match.end() + _LONGEST_HEAD])
        ]
        if not found:
            return self._without_prefix(number, text, raw)
        before = text[: found[0].start()]
        if before.strip() and (
            self._entries.wrapped or (self._entries.current is not None and self._entries.current.bare is not False)
        ):
            self._without_prefix(number, before, b"")
        ends = [match.start() for match in found[1:]] + [len(text)]
        for match, end in zip(found, ends, strict=True):
            thread = int(match["tid"]) if match["tid"] else None
            self._out.stamp = stamp_of(match["date"])
            if match["elapsed"]:
                self._out.elapsed = (self._out.elapsed or 0) + nanoseconds(match["elapsed"])
            if thread != self._entries.thread:
                self._entries.turn_to(thread)
            self._timed = bool(match["elapsed"] or match["date"])
            whole = len(found) == 1 and match[0].endswith(b" ") and (not self._timed or not match.start())
            self._prefix, self._plain = NO_PREFIX, text[: match.end()]
            if not whole:
                raw = b""
            elif self._timed:
                name = text.index(b"MIOpen", max(match.end("tid"), match.start())) + len(b"MIOpen")
                self._plain = text[: max(match.end("backend"), name)] + b": "
                self._timed_prefixes.add(self._plain[:-2])
                raw = self._plain + text[match.end() :] + b"\n"
            else:
                self._prefix = self._plain
            self._body(number, text[match.end() : end], raw)
        return True

    def _is_body(self, text: bytes) -> bool:
        """Whether this can follow a prefix: needed where the prefix is the bare word."""
        return bool(
            text[:1] == b"\t" or text.strip() == b"}" or LEVEL.match(text) or text.startswith(b"Command [")
            or (b"(" in text and SIGNATURE.match(text)) or (self._entries.opens and PARAM.match(text))
        )  # fmt: skip

    def _body(self, number: int, body: bytes, raw: bytes) -> bool:
        """What follows a prefix; ``raw`` is the line when it holds nothing else."""
        if self._entries.wrapped:
            self._entries.give_up_header()
        entry = self._entries.current
        if entry is not None:
            stripped = body.strip()
            if stripped == b"}":
                self._entries.close(entry, number)
                return True
            if PARAM.match(body) and len(entry.lines) < MAX_PARAMS:
                self._entries.append(entry, number, body.lstrip())
                return True
        found = LEVEL.match(body)
        if found:
            self._message(number, found[1], found[2], found[3] or b"", raw)
            return True
        found = COMMAND.match(body)
        if found:
            tag, command = found[1].decode(errors="replace"), found[2].strip().decode(errors="replace")
            self._command(number, tag, command, self._entries.thread, raw if raw.startswith(self._plain) else b"")
        elif b"(" in body and (SIGNATURE.match(body) or body.rstrip().endswith(b"{")):
            self._entries.header(number, body, raw, None, self._plain)
        elif PARAM.match(body) and entry is None:
            # the log starts inside an entry
            self._entries.append(
                self._entries.begin(Header(api="", thread=self._entries.thread), b"", None, number),
                number,
                body.lstrip(),
            )
        elif body.strip() == b"}":
            self._out.counts["brace alone"] += 1
        elif body.strip():
            self._out.counts["stray"] += 1
        return True

    def _without_prefix(self, number: int, text: bytes, raw: bytes) -> bool:
        ours = is_of_interest(text)
        return (
            self._entries.continues(number, text)
            or (ours and self._bare_command(number, text, raw))
            or self._entries.takes_bare(number, text, self._names)
            or (ours and (self._printed(number, text) or self._bare_entry(number, text, raw)))
        )

    def _bare_command(self, number: int, text: bytes, raw: bytes) -> bool:
        found = OLD_COMMAND.search(text)
        if found:
            tag, command = found["by"] or found["tag"], found["text"].strip().decode(errors="replace")
            self._command(number, tag.decode(errors="replace"), command, None, raw)
            return True
        found = BARE_COMMAND.match(text)
        if found:
            self._command(number, "", found[1].strip().decode(errors="replace"), None)
            return True
        if b"kernel_name = " in text and b"local_work_dim = " in text:
            for launch in debug_launches(text):
                self._add_message(number, "Debug", "run", launch, "launch")
            return True
        return False

    def _printed(self, number: int, text: bytes) -> bool:
        """What the library and its driver print to standard output and error."""
        if text.startswith(PERFORMANCE):
            self._add_message(number, "Performance", "", text, "performance")
        elif DRIVER_OUTPUT.match(text):
            self._add_message(number, "Driver", "MIOpenDriver", text, "driver")
        elif text.startswith(b"rnn") and b" -n " in text and b" -k " in text:
            self._counted(number, text, "rnn command repeated on standard output")
        elif TENSOR_PRINT.match(text):
            self._counted(number, text, "line tensor print")
        elif (record := solver_record(text.decode(errors="replace")) if b"=" in text else None) is not None:
            for item in record.items():
                self._add_message(number, "Database", "", item.encode(), "find-db record")
        else:
            failed = failure(text)
            if failed is None:
                return False
            self._add_message(number, "Error", "", *failed)
        return True

    def _counted(self, number: int, text: bytes, count: str) -> None:
        """A print that tells nothing of an operation."""
        if self._out.everything:
            self._add_message(number, "Debug", "", text, count.removeprefix("line "))
        else:
            self._out.counts[count] += 1

    def _bare_entry(self, number: int, text: bytes, raw: bytes) -> bool:
        decoded = parse_range(text.decode(errors="replace")) if b"s_api = " in text else None
        if decoded is not None:
            self._out.add_entry(Header(api=decoded[0]), number, number, decoded[1])
            return True
        if b"miopen" in text and b"(" in text and SIGNATURE.match(text):
            self._entries.header(number, text, raw, True, NO_PREFIX)
            return True
        return False

    # Commands and messages

    def _command(self, number: int, tag: str, text: str, thread: int | None, raw: bytes = b"") -> None:
        """A command; ``raw`` is the line when it holds nothing else."""
        self._out.add_command(number, tag, text, thread)
        if raw:
            made = Command(self._out.source, 0, tag, text, thread)
            prefixed = raw.startswith(self._plain)
            self._replay.learn_line(raw, command_kind(text), thread, made, prefixed)

    def _message(self, number: int, level: bytes, tag: bytes, text: bytes, raw: bytes) -> None:
        key = (level, tag, text.translate(_ALL_ZERO))
        kind = self._kinds.get(key)
        if kind is None:
            kind = classify(level.decode(), tag.decode(errors="replace"), text.decode(errors="replace"))
            if len(self._kinds) < INTERN:
                self._kinds[key] = kind
        self._out.counts["level " + kind] += 1
        if kind in KEPT_KINDS or self._out.everything:
            self._add_message(number, level.decode(), tag.decode(errors="replace"), text, kind, raw)
        elif raw and raw.startswith(self._plain):
            self._replay.learn_line(raw, "level " + kind, self._entries.thread)

    def _add_message(self, number: int, level: str, tag: str, text: bytes, kind: str, raw: bytes = b"") -> None:
        content = self._texts.get(text)
        if content is None:
            content = text.decode(errors="replace")
            if len(self._texts) < INTERN:
                self._texts[text] = content
        if level in ("Driver", "Performance", "Debug", "Database") or (level == "Error" and not tag):
            self._out.counts["line " + kind] += 1
        message = Message(
            source=self._out.source,
            line=number,
            level=level,
            function=tag,
            text=content,
            kind=kind,
            thread=self._entries.thread,
            stamp=self._out.stamp,
            elapsed_ns=self._out.elapsed,
        )
        if raw and raw.startswith(self._plain):
            self._replay.learn_line(raw, "level " + kind, self._entries.thread, message)
        self._out.add_message(message, key_of(message))
