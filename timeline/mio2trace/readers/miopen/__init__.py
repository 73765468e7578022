"""MIOpen's log, 1.0 (2017) to 3.6 (2026): from lines to records, in one pass (miopen-log.md 2, 3, 7, 8).

    MIOpen(HIP): miopenStatus_t miopenPoolingForward(miopenHandle_t, ...){
    MIOpen(HIP): <TAB>poolDesc = miopenPoolingMax, 3, 3, 0, 0, 2, 2,
    MIOpen(HIP): }
    MIOpen(HIP): Command [Pooling_logging_cmd] ./bin/MIOpenDriver pool ...
    MIOpen(HIP): Info [ConvolutionForward] algo = 0, workspace = 7375872

Every form is recognised by its own shape, never by an assumed version. The last prefix is tried first, so that the
usual line costs one search; all other lines take the slow way through one regular expression. Repeated records are
taken in larger pieces (`mio2trace.readers.miopen.entries`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, compress, pairwise, repeat
from operator import add

import msgspec

from mio2trace.model.choices import solver_record
from mio2trace.model.log import LocalTime
from mio2trace.model.miopen import Command, Message, MiopenLog
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.miopen.entries import (
    INTERN,
    NO_PREFIX,
    Collected,
    Entries,
    Header,
    Other,
    Replay,
    command_kind,
    key_of,
    nothing,
)
from mio2trace.readers.miopen.lines import (
    AFTER_COMMAND,
    ANSI,
    BARE_COMMAND,
    CLOSE,
    COMMAND,
    COUNTED,
    DRIVER_OUTPUT,
    KEPT_KINDS,
    LEVEL,
    MARKS,
    MAX_PARAMS,
    MAY_BE_PART,
    OLD_COMMAND,
    PARAM,
    PERFORMANCE,
    PREFIX,
    SIGNATURE,
    TENSOR_PRINT,
    classify,
    debug_launches,
    failure,
    is_of_interest,
    parse_range,
    stamp_of,
)

_ALL_ZERO = bytes(b"0"[0] if byte in b"123456789" else byte for byte in range(256))
"""The meaning of a text does not depend on its digits."""

_ECHO = len(b"MIOpenDriver: ")
_LONGEST_HEAD = 1024
"""Bytes after a prefix that show whether it is one: a line may contain its word thousands of times."""


class MiopenDecoder:
    """Reads the lines of a log, and returns the `MiopenLog` at the end. Memory grows only with the records that are
    kept. ``everything``: also keep records that show nothing about an operation."""

    def __init__(self, source: int, notes: Notes, *, everything: bool = False) -> None:
        self._notes = notes
        self._out = Collected(source, everything=everything)
        self._names: set[bytes] = set()
        self._replay = Replay(self._out, self._names)
        self._texts: dict[bytes, str] = {}
        self._kinds: dict[tuple[bytes, bytes, bytes], str] = {}
        self._prefix = NO_PREFIX  # of the last line with a prefix; no line had this value yet
        self._plain = NO_PREFIX  # the last prefix without a time
        self._timed = False
        self._timed_prefixes = TimedPrefixes()
        self._view: Untimed | None = None
        self._entries = Entries(self._out, self._replay, notes)
        self.wrapped = WrappedCommands(self._out)
        # The places of the commands that a person gave, because the driver repeats them: the last ones, those by text,
        # and those that a later repetition replaces.
        self._typed: list[int] = []
        self._awaited: defaultdict[str, deque[int]] = defaultdict(deque)
        self._replaced: set[int] = set()
        self._threads: set[int | None] = set()  # those of a whole entry: their numbers count no lines

    def feed(self, number: int, line: bytes) -> bool:
        """Read line ``number`` (from 1); return False if it is no part of a MIOpen record."""
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
            # without a backend the prefix is an ordinary word
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
        """Read the records from ``data[at:]``, line ``number``, as long as they equal earlier ones. The result is that
        of `feed` line by line, but many times faster. ``other`` reads the lines between them that begin like glog's,
        and returns whether it did. Return the place and the line of the first new record, and whether it is an entry
        whose end may be in the following bytes."""
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
        """Whether no entry is open, so that a line can be read by itself."""
        return not self._entries.opens and not self._entries.wrapped

    def _turned_to(self, thread: int | None) -> None:
        """Turn to the thread of the last line taken; the prefix of the last line fed may be of another thread."""
        if thread != self._entries.thread:
            self._entries.thread = thread
            self._prefix = self._plain = NO_PREFIX

    def ends_open(self, lines: int) -> bool:
        """Return whether the last of ``lines`` is inside an entry."""
        return self._entries.ends_at(lines)

    def finish(self, foreign: int = 0) -> MiopenLog:
        """Return the log. Open entries are kept, marked incomplete. ``foreign``: lines that no decoder knew."""
        self._entries.finish()
        self._replay.settle()
        counts = self._out.counts
        records = tuple(record for place, record in enumerate(self._out.records) if place not in self._replaced)
        if stray := counts.get("stray", 0):
            self._notes.remark("line with MIOpen's prefix of an unknown form", count=stray)
        if other := counts.get("level other", 0):
            self._notes.remark("MIOpen message of an unknown kind", count=other)
        return MiopenLog(
            source=self._out.source, records=records, counts=tuple(sorted(counts.items())), foreign=foreign
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
        """Cut a line with several records at every prefix."""
        found = b"MIOpen" in text and [
            match
            for match in PREFIX.finditer(text)
            if match["backend"] or self._is_body(text[match.end() : match.end() + _LONGEST_HEAD])
        ]
        if not found:
            return self._without_prefix(number, text, raw)
        counted = COUNTED.match(text)
        who = 0 if counted is None else int(counted[0].split()[-1])
        if counted is not None and (who in self._threads or not PREFIX.match(text, counted.end())):
            counted = None
        body = text[found[0].end() :]
        if counted is not None and (who == number or LEVEL.match(body) or body.startswith(b"Command [")):
            self._notes.add("line of MIOpen behind a number, as of uniq -c: skipped", f"line {number}")
            return False
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
        if counted is not None:
            self._prefix = NO_PREFIX  # the next line is looked at, too
        return True

    def _is_body(self, text: bytes) -> bool:
        """Return whether this can follow a prefix; needed if the prefix is only the word."""
        return bool(
            text[:1] == b"\t" or text.strip() == b"}" or LEVEL.match(text) or text.startswith(b"Command [")
            or (b"(" in text and SIGNATURE.match(text)) or (self._entries.opens and PARAM.match(text))
        )  # fmt: skip

    def _body(self, number: int, body: bytes, raw: bytes) -> bool:
        """Read the text after a prefix. ``raw``: the line, if it holds nothing else."""
        if self._entries.wrapped:
            self._entries.give_up_header(goes_on=PARAM.match(body) is not None)
        entry = self._entries.current
        if entry is not None:
            stripped = body.strip()
            if stripped == b"}":
                self._threads.add(self._entries.thread)
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
            tag, command = found[1].decode(errors="replace"), _command_in(found[2])
            self._command(number, tag, command, self._entries.thread, raw if raw.startswith(self._plain) else b"")
        elif b"(" in body and (SIGNATURE.match(body) or body.rstrip().endswith(b"{")):
            self._entries.header(number, body, raw, None, self._plain)
        elif PARAM.match(body) and entry is None:
            # the log starts inside an entry
            entry = self._entries.begin(Header(api="", thread=self._entries.thread), b"", None, number)
            self._entries.append(entry, number, body.lstrip())
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
            tag, command = found["by"] or found["tag"], _command_in(found["text"])
            self._command(number, tag.decode(errors="replace"), command, None, raw)
            return True
        found = BARE_COMMAND.match(text)
        if found:
            command, before = _command_in(found["text"]), self.wrapped.ends_before(number)
            if found["path"] is not None or found.start("text") > _ECHO:
                self._typed.append(len(self._out.records))
            elif (place := self._typed_before(command)) is not None:
                typed = self._out.records[place]
                self._counted(number, text, "driver command repeated on standard output")
                if typed is before and typed.text.split() == command.split():
                    return True
                self._replaced.add(place)  # what the driver prints for it comes here
                self._out.counts[command_kind(command)] -= 1
            self._command(number, "", command, None)
            return True
        if b"kernel_name = " in text and b"local_work_dim = " in text:
            for launch in debug_launches(text):
                self._add_message(number, "Debug", "run", launch, "launch")
            return True
        return False

    def _typed_before(self, command: str) -> int | None:
        """Return the place of a command that a person gave and the driver repeats now: the last record, maybe without
        its end or with variables of the shell, or an earlier one."""
        records, words = self._out.records, command.split()
        last = records[-1] if self._typed and self._typed[-1] == len(records) - 1 else None
        if isinstance(last, Command) and _may_begin(last.text.split(), words):
            return self._typed.pop()
        for place in self._typed:
            typed = records[place]
            if isinstance(typed, Command):
                self._awaited[" ".join(typed.text.split())].append(place)
        self._typed.clear()
        places = self._awaited.get(" ".join(words))
        return places.popleft() if places else None

    def _printed(self, number: int, text: bytes) -> bool:
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
        """Count a line that shows nothing about an operation."""
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
        """Read a command. ``raw``: the line, if it holds nothing else."""
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
        out, thread = self._out, self._entries.thread
        message = Message(out.source, number, level, tag, content, kind, thread, out.stamp, out.elapsed)
        if raw and raw.startswith(self._plain):
            self._replay.learn_line(raw, "level " + kind, self._entries.thread, message)
        if kind != "key" or out.is_new_key(key_of(message)):
            out.records.append(message)


def _may_begin(typed: list[str], words: list[str]) -> bool:
    """Return whether a command that a person gave may be the beginning of one that the driver repeats."""
    return len(typed) <= len(words) and all(
        "$" in one or one == other for one, other in zip(typed, words, strict=False)
    )


def _command_in(text: bytes) -> str:
    """Return a command without what a shell or Markdown adds behind it."""
    end = AFTER_COMMAND.search(text)
    return (text[: end.start()] if end else text).rstrip(MARKS).lstrip().decode(errors="replace")


# ----------------------------------------------------------------------------------------------------------------------
# Commands that a terminal wrapped: a line of options directly after a command continues it (miopen-log.md 7).

_OPTION = late(r"--?[A-Za-z]\w*")
_VALUE = late(r"-?[\w.]+")
_LONGEST, _MOST_LINES = 400, 6


class WrappedCommands:
    """Commands that a log has in several lines. ``end``: the last line of the command that begins in line ``begin``."""

    def __init__(self, out: Collected) -> None:
        self._out = out
        self._begin = self._end = 0

    def ends_before(self, number: int) -> Command | None:
        """Return the command that line ``number`` may continue."""
        command = self._out.records[-1] if self._out.records else None
        if not isinstance(command, Command) or number > command.line + _MOST_LINES:
            return None
        end = self._end if self._begin == command.line else command.line
        return command if number == end + 1 else None

    def takes(self, number: int, line: bytes) -> bool:
        """Take line ``number`` if it continues a command in the line before it."""
        if b"-" not in line or len(line) > _LONGEST:
            return False
        command = self.ends_before(number)
        if command is None:
            return False
        more = line.removeprefix(b"> ").rstrip(b"\\ \t\r\n").decode(errors="replace")
        tokens = more.split()
        if not _are_options(tokens):
            return False
        text = _joined(command.text, more, tokens)
        if _repeated(text) > _repeated(command.text):
            return False  # another program's line: MIOpen prints no option twice
        self._out.records[-1] = msgspec.structs.replace(command, text=text)
        self._begin, self._end = command.line, number
        return True


def _are_options(tokens: list[str]) -> bool:
    """Return whether all words are options with their values. The first may be the rest of an option that began in the
    line before."""
    values = [_OPTION.fullmatch(token) is None for token in tokens]
    return (
        not all(values)
        and all(map(_VALUE.fullmatch, compress(tokens, values)))
        and not any(before and value for before, value in pairwise(values[1:]))
    )


def _repeated(text: str) -> int:
    options = [token for token in text.split() if _OPTION.fullmatch(token)]
    return len(options) - len(set(options))


def _joined(text: str, more: str, tokens: list[str]) -> str:
    """Join a command and its continuation, with the space that the line end may have lost."""
    if text.endswith("-"):
        return text + more
    if more[:1].isspace() or more.startswith("-"):
        return f"{text} {more.lstrip()}"
    completes_option = len(tokens) > 1 and not _OPTION.fullmatch(tokens[1])
    after_option = _OPTION.fullmatch(text.rpartition(" ")[2]) is not None
    return f"{text} {more}" if after_option and not completes_option else text + more


# ----------------------------------------------------------------------------------------------------------------------
# Lines whose prefix holds a time are all different: here without it, so that repetitions show (miopen-log.md 2.1)
#
# MIOpen(HIP)   0.559: Info [Handle] ...            elapsed time since the line before
# MIOpen(HIP) (2026-11-20T11:39:11.363Z): ...       date and time

_TIMES = rb"([ \t]+\d{1,12}\.\d{3})?( \(\d{4}-[^()\n]*+\))?: "
_MAX_HEADS = 64


def nanoseconds(elapsed: bytes) -> int:
    """Convert milliseconds with three decimals to ns."""
    return int(elapsed.replace(b".", b"")) * 1000


class TimedPrefixes:
    """The prefixes with a time that were met, each up to the time: ``MIOpen(HIP)``; another one for each thread."""

    def __init__(self) -> None:
        self._heads: dict[bytes, re.Pattern[bytes]] = {}
        self.pattern: re.Pattern[bytes] | None = None
        """Finds the end of a line and the following prefix: groups head, elapsed time, date."""

    def add(self, head: bytes) -> None:
        """Add a prefix."""
        if head not in self._heads and len(self._heads) < _MAX_HEADS:
            self._heads[head] = re.compile(re.escape(head) + _TIMES)
            self.pattern = re.compile(rb"\n(" + b"|".join(map(re.escape, self._heads)) + rb")" + _TIMES)

    def match(self, head: bytes, line: bytes) -> re.Match[bytes] | None:
        """Match the prefix ``head`` at the beginning of a line: groups elapsed time, date."""
        pattern = self._heads.get(head)
        return pattern.match(line) if pattern is not None else None


class Untimed:
    """``data`` from the byte ``at`` on (the beginning of line ``number``) without the times, as ``plain``."""

    def __init__(self, prefixes: re.Pattern[bytes], data: bytes, at: int, number: int) -> None:
        self.data = data
        self.at = at
        parts = prefixes.split(b"\n" + data[at:])
        first, heads, elapsed, dates, texts = parts[0], parts[1::4], parts[2::4], parts[3::4], parts[4::4]
        count = len(texts)
        lines = zip(repeat(b"\n"), heads, repeat(b": "), texts, strict=False)
        self.plain = (first + b"".join(chain.from_iterable(lines)))[1:]
        sizes = map(add, map(len, heads), map(len, texts))
        # Places of lines with a prefix in `plain`.
        self._starts = list(accumulate(map(add, sizes, repeat(3)), initial=len(first)))
        taken = map(add, map(len, _filled(elapsed)), map(len, _filled(dates)))
        self._removed = list(accumulate(taken, initial=0))  # lines before each
        self._original = list(map(add, self._starts, self._removed))
        number += first.count(b"\n")
        self._numbers: Sequence[int] = range(number, number + count)
        if texts and self.plain.count(b"\n", len(first)) != count - 1 + texts[-1].count(b"\n"):
            # other lines stand between them
            self._numbers = list(accumulate((text.count(b"\n") + 1 for text in texts[:-1]), initial=number))
        self._dates = dates
        # a missing value counts as 0, and `_told` distinguishes it from 0
        self._told = list(accumulate((one is not None for one in elapsed), initial=0)) if None in elapsed else None
        digits = b" ".join(_filled(elapsed, b"0")).replace(b".", b"").split()
        self._elapsed = list(accumulate(map(int, digits), initial=0))
        self._begin = 0
        self._before: tuple[LocalTime | None, int | None] = None, None

    def holds(self, data: bytes, at: int) -> bool:
        """Return whether the byte ``at`` of ``data`` is within."""
        return data is self.data and at >= self.at

    def inside(self, at: int) -> int:
        """Return the place in `plain` of the byte ``at``, the beginning of a line."""
        at -= self.at
        return int(at - self._removed[bisect_left(self._original, at)])

    def outside(self, at: int) -> int:
        """Return the byte that is at the place ``at`` in `plain`, the beginning of a line."""
        return int(self.at + at + self._removed[bisect_left(self._starts, at)])

    def begin(self, number: int, stamp: LocalTime | None, elapsed: int | None) -> None:
        """Count from before line ``number``, where the last prefix had ``stamp`` and ``elapsed``."""
        self._begin = bisect_right(self._numbers, number - 1)
        self._before = stamp, elapsed

    def clock(self, number: int) -> tuple[LocalTime | None, int | None]:
        """Return the times of the last prefix up to line ``number``: its stamp, and elapsed nanoseconds in all."""
        at, begin = bisect_right(self._numbers, number), self._begin
        stamp, elapsed = self._before
        if at <= begin:
            return stamp, elapsed
        if self._told is None or self._told[at] > self._told[begin]:
            elapsed = (elapsed or 0) + (self._elapsed[at] - self._elapsed[begin]) * 1000
        date = self._dates[at - 1]
        return stamp_of(date) if date else None, elapsed


def _filled(found: list[bytes | None], nothing: bytes = b"") -> Iterable[bytes]:
    return [one if one is not None else nothing for one in found]
