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
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from timeline.model.log import LocalTime
from timeline.model.miopen import Command, Entry, Message, MiopenLog
from timeline.notes import Notes

MAX_PARAMS = 16  # miopen-log.md 3.3: never more are printed
_BLOCK = 4096  # lines taken at once by `decode`
_TAIL = 96
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
_INTEREST = re.compile(
    rb"MIOpen|miopen|kernel_name = |s_api = |^\{\"(?:solution|performance)\"|^rnn(?:_seq)?(?:fp16)? -n "
    rb"|^stats: |^GPU Kernel|^PRNG seed|^Warm-up: |Verif(?:y|ies) |^- id: "
)
_DRIVER_OUTPUT = re.compile(
    rb"^(?:MIOpen (?:Forward|Backward)|GPU Kernel|stats: |PRNG seed|Warm-up: |- id: \d|.* Verif(?:y|ies) )"
)
_CLOSE = frozenset((b"}\n", b"}\r\n", b"}"))
_NOT_KEPT = re.compile(
    r"miopen(?:Destroy\w*|Get\w*|Query\w*|EnableProfiling|\w*GetWorkSpaceSize\w*|\w*WorkSpaceSize|\w*WorkspaceSize\w*"
    r"|Create\w*Descriptor\w*|CreateOperatorArgs|Create(?:WithStream)?|Derive\w*|SetStream|SetAllocator"
    r"|\w*SolutionCount\w*|(?:Load|Save)Solution|Init\w*Descriptor"
    r"|Set\w*(?:Pooling|Activation|LRN|RNN|Dropout|CTC|Convolution|ReduceTensor)\w*)"
)


class _Header(msgspec.Struct, kw_only=True):
    """What a header line says; learned once per distinct line, to take the whole entry at its next appearance.

    ``bare``: the parameters have no prefix (1.0-1.8). ``prefix`` begins the header, ``param`` a parameter line (with
    the end of the line before it), ``close`` is the closing line. ``taken`` counts the entries taken whole.
    """

    api: str
    nested: bool = False
    keep: bool = True
    sets_type: bool = False
    bare: bool = False
    prefix: bytes = b"\0"
    param: bytes = b""
    close: bytes = b""
    thread: int | None = None
    taken: int = 0


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


# What a level line tells, by its tag. A tag with several meanings has a tuple of (text contains, kind), the first wins.
_BY_TAG: dict[str, str | tuple[tuple[str, str], ...]] = {
    "run": "launch",
    "Invoke": "launch name",
    "CallGemm": (("gemm_desc", "gemm"), ("", "gemm library")),
    "CallGemmTimeMeasure": (("gemm_desc", "gemm"), ("", "gemm library")),
    "CallGemmStridedBatched": (("gemm_desc", "gemm"), ("", "gemm library")),
    "CallGemmStridedBatchedSequential": (("gemm_desc", "gemm"), ("", "gemm library")),
    "GetInvoker": "invoker",
    "ConvolutionForward": (("algo = ", "execution"),),
    "ConvolutionBackwardData": (("algo = ", "execution"),),
    "ConvolutionBackwardWeights": (("algo = ", "execution"),),
    "ConvolutionForwardImmediate": (("solver_id = ", "immediate"),),
    "ConvolutionBackwardImmediate": (("solver_id = ", "immediate"),),
    "ConvolutionWrwImmediate": (("solver_id = ", "immediate"),),
    "LogConvolutionExecution": (("Problem=", "summary"),),
    "FillFindReturnParameters": (("Chosen Algorithm", "chosen"),),
    "FindConvolution": (("Chosen Algorithm", "chosen"), ("Algo", "result")),
    "EvaluateInvokers": (("Selected: ", "selected"), (": ", "benchmark")),
    "SetAsFound1_0": "registered",
    "Register": "invoker registered",
    "SetValues": (("content inserted: ", "find-db insert"),),
    "AmdRocmMetadataVersionDetect": "version",
    "DetectAmdRocmMetadataVersion": "version",
    "get_device_name": "device",
    "Handle": "stream",
    "SetStream": "stream",
    "IsEnoughWorkspace": "workspace warning",
    "PrepareInvoker": "prepare",
    "GetKernels": (("key: miopenConvolution", "kernel key"), ("", "kernel cache")),
    "GetFound1_0": "solutions",
    "AddKernel": "kernel cache",
    "AddKernelDumpKernelParams": "kernel cache",
    "Monitor": "tuning",
    "GenericSearch": "tuning",
    "GetAllConfigs": "tuning",
    "FindSolutionImpl": (("Starting search", "tuning"), ("Search failed", "tuning"), ("", "candidate")),
    "SearchForAllSolutions": "candidate",
    "Measure": "timing",
    "impl": "database",
    "Prepare": "database",
    "Exec": "database",
    "Log": "timing",
    "ForwardGetWorkSpaceSize": "workspace",
    "BackwardDataGetWorkSpaceSize": "workspace",
    "BackwardWeightsGetWorkSpaceSize": "workspace",
    "GetWorkSpaceSize": "workspace",
}
_BY_TEXT: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"Chosen Algorithm: ", "chosen"),
        (r"^requestAlgoCount = ", "search"),
        (r"^miopen\w+Algo\w+\s", "result"),
        (r"^[\w<>-]+: .*: \S+ (?:<|>=) \S+$", "benchmark"),
        (r"[Nn]ot applicable|: Success|: Skipped|[Nn]ot searchable|\(not searchable\)|granularity_loss", "candidate"),
        (r"Looking for key", "key"),
        (r"^id: \d+|Estimated WTI|Fallback path|maxSolutionCount|TunaNet|Found solution", "solutions"),
        (r"^Executing the ", "step"),
        (r"^ ?N=\d+ .*C=\d+ .*K=\d+", "arguments"),
        (r"MIOPEN_\w+ ?=|^HIPRTC v|^COMgr v|HCC base|HIP_VERSION", "environment"),
        (r" time: |Time, ms|time, ms", "timing"),
        (r"(?i)workspace", "workspace"),
        (
            r"(?i)database|find-db|perf db|perf_db|\bdb\b|record|prefetch|file is|filesystem|unreadable|Contents found"
            r"|Key match|ndirectory",
            "database",
        ),
        (r"(?i)kernel|binary|compil|source|\.s\b|\.cl\b|\.cpp\b", "build"),
        (r"(?i)descriptor|descritor", "step"),
    )
)
_BY_TAG_PATTERN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"^FindConv(?:Fwd|BwdData|BwdWeights)Algorithm$", "search"),
        (r"Solutions|Solution$|Fallback|WTI", "solutions"),
        (r"[Ww]ork[Ss]pace", "workspace"),
        (r"IsApplicable|PerformanceConfig|[HE]uristic|Config|Solver|Context", "candidate"),
        (r"Db|DB|SQLite|Record|Load|Store|Path|File|Cache|Prefetch|Validate|Filesystem|Ram", "database"),
        (r"Build|Compile|Binary|Kernel|Program|HIPRTC|COMgr|Link|Assemble", "build"),
        (r"Version|Mode|Env|Device|Handle|Stream|hip_mem|Policy|Tuning", "environment"),
        (r"Tensor|Reduce", "step"),
    )
)
# Messages that say something about an operation; the others are counted only.
KEPT_KINDS = frozenset(
    (
        "launch", "gemm", "gemm library", "invoker", "kernel key", "execution", "immediate", "summary", "chosen",
        "benchmark", "selected", "result", "registered", "invoker registered", "find-db insert", "key", "version",
        "device", "search", "workspace warning", "error", "warning", "driver", "performance", "step",
    )
)  # fmt: skip


def classify(level: str, function: str, text: str) -> str:
    """What a level line tells (miopen-log.md 8); ``other`` when nothing is known about it."""
    found = _BY_TAG.get(function)
    if found is not None:
        if isinstance(found, str):
            return found
        for part, kind in found:
            if part in text:
                return kind
    if level in ("Error", "Fatal"):
        return "error"
    for pattern, kind in _BY_TEXT:
        if pattern.search(text):
            return "warning" if level == "Warning" and kind not in ("chosen", "benchmark") else kind
    if level == "Warning":
        return "warning"
    if level == "Trace":
        return "trace"
    for pattern, kind in _BY_TAG_PATTERN:
        if pattern.search(function):
            return kind
    return "other"


def parse_range(text: str) -> tuple[str, bytes] | None:
    """(api, body) of a ROCTX range text ``s_api = miopenX | name = value | ...`` (miopen-log.md 9.4)."""
    found = _RANGE.search(text.encode())
    if found is None:
        return None
    parts = [part for part in found[2].split(b" | ") if part.strip(b" |")]
    return _api_name(found[1]), b"".join(part.strip(b" |") + b"\n" for part in parts)


def _api_name(name: bytes) -> str:
    return name.decode(errors="replace").removesuffix("_impl")


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
        self._commands: Counter[str] = Counter()
        self._known: dict[bytes, _Header | tuple[str, str, int | None] | str] = {}  # by the whole line
        self._names: set[bytes] = set()
        self._bodies: dict[bytes, bytes] = {}
        self._types: dict[bytes, bytes] = {}  # the type last given to a shape, both as logged
        self._texts: dict[bytes, str] = {}
        self._kinds: dict[tuple[bytes, bytes, bytes], str] = {}
        self._prefix = b"\0"  # of the last prefixed line; nothing has it yet
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
                if known is not None and not self._wrapped:
                    if isinstance(known, _Header):
                        if known.thread == self._thread:
                            self._begin(known, line, known.bare or None, number)
                            return True
                    elif isinstance(known, tuple):
                        self._add_command(number, *known)
                        return True
                    else:
                        self._counts[known] += 1
                        return True
            elif rest[:1] == b"\t" and len(entry.lines) < MAX_PARAMS:
                entry.lines.append(rest[1:])
                entry.last = number
                return True
            elif rest in _CLOSE:
                self._close(entry, number)
                return True
            if not self._wrapped and b"\x1b" not in rest and b"\r" not in rest:
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

    def feed_from(self, number: int, lines: Sequence[bytes], at: int) -> int:
        """Take as many of ``lines[at:]`` as make one record; ``number`` is the first one's. 0 when it is foreign.

        The same as `feed` line by line, and faster: an entry whose header is known is taken whole.
        """
        known = self._known.get(lines[at])
        if known is not None and not self._opens and not self._wrapped:
            if isinstance(known, str):
                self._counts[known] += 1
                return 1
            if isinstance(known, tuple):
                self._add_command(number, *known)
                return 1
            try:
                end = lines.index(known.close, at + 1, at + MAX_PARAMS + 2)
            except ValueError:
                return 1 if self.feed(number, lines[at]) else 0
            inner = lines[at + 1 : end]
            body = b"".join(inner)
            if known.bare:
                clean = {line.partition(b" = ")[0] for line in inner} <= self._names and known.prefix not in body
            elif known.keep:
                # every line begins with the prefix, and has no second one
                parts = (b"\n" + body).split(known.param)
                body = b"\n".join(parts[1:])
                clean = len(parts) == len(inner) + 1 and not parts[0] and known.prefix not in body
            else:
                clean = (b"\n" + body).count(known.param) == len(inner) == body.count(known.prefix)
            if clean:
                known.taken += 1
                if known.keep and not (known.sets_type and self._type_is_known(body)):
                    body = self._shared(body)
                    self._records.append(
                        Entry(
                            source=self._source,
                            line=number,
                            end_line=number + end - at,
                            api=known.api,
                            body=body,
                            thread=known.thread,
                            nested=known.nested,
                        )
                    )
                return end - at + 1
        return 1 if self.feed(number, lines[at]) else 0

    def decode(self, lines: Iterable[bytes], first: int = 1) -> MiopenLog:
        """Decode a log that holds nothing but MIOpen's lines and lines to pass over."""
        stream = iter(lines)
        block = list(islice(stream, _BLOCK))
        take = self.feed_from
        while block:
            at = 0
            until = len(block)
            while at < until:
                at += take(first + at, block, at) or 1
            first += at
            block = list(islice(stream, _BLOCK))
            if len(self._bodies) > _INTERN:
                self._bodies.clear()
        return self.finish()

    def finish(self) -> MiopenLog:
        """The log. Entries still open are kept, marked incomplete."""
        if self._wrapped:
            self._give_up_header()
        for entry in list(self._opens.values()):
            self._cut(entry)
        for header in self._known.values():
            if isinstance(header, _Header) and header.taken:
                self._counts["entry " + header.api] += header.taken
                header.taken = 0
        for text, number in self._commands.items():
            self._counts["command " + text.partition(" ")[0]] += number
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
        )

    # Lines

    def _slow(self, number: int, line: bytes) -> bool:
        if not self._wrapped and not self._opens and not _INTEREST.search(line):
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
            steady = not match["elapsed"] and not match["date"] and len(found) == 1
            self._prefix = text[: match.end()] if steady else b"\0"
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
                self._known[raw] = (tag, command, self._thread)
            self._add_command(number, tag, command, self._thread, self._stamp, self._elapsed)
        elif b"(" in body and (_SIGNATURE.match(body) or body.rstrip().endswith(b"{")):
            self._header(number, body, raw, bare=None)
        elif _PARAM.match(body) and entry is None:
            # the log starts inside an entry
            self._append(self._begin(_Header(api="", thread=self._thread), b"", None, number), number, body.lstrip())
        elif body.strip() == b"}":
            self._counts["cut entry"] += 1
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
            self._add_command(number, found[1].decode(), found[2].strip().decode(errors="replace"), None)
            return True
        found = _BARE_COMMAND.match(text)
        if found:
            self._add_command(number, "", found[1].strip().decode(errors="replace"), None)
            return True
        if b"kernel_name = " in text and b"local_work_dim = " in text:
            for launch in _DEBUG_LAUNCH.findall(text):
                self._add_message(number, "Debug", "run", launch.rpartition(b"kernel_name = ")[2], "launch", True)
            return True
        if entry is not None and entry.bare is not False and (entry.bare or not entry.lines):
            if text.strip() == b"}":
                entry.bare = True
                self._close(entry, number)
                return True
            if _PARAM.match(text) and len(entry.lines) < MAX_PARAMS:
                entry.bare = True
                self._names.add(text.strip().partition(b" = ")[0])
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
        prefix = self._prefix if raw and bare is None else b"\0"
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
        if entry.raw and not header.close and len(self._known) < _INTERN:
            end = b"}\r\n" if entry.raw.endswith(b"\r\n") else b"}\n"
            bare = bool(entry.bare)
            self._known[entry.raw] = msgspec.structs.replace(
                header,
                bare=bare,
                param=b"" if bare else b"\n" + header.prefix + b"\t",
                nested=header.nested or bool(entry.lines and entry.lines[0].lstrip().startswith((b'"', b"name + "))),
                close=end if bare else header.prefix + end,
            )
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

    def _shared(self, body: bytes) -> bytes:
        """The object that an equal body already has, found by its end: to hash all of it would take too long."""
        same = self._bodies.get(body[-_TAIL:])
        if same == body:
            return same
        self._bodies[body[-_TAIL:]] = body
        return body

    def _type_is_known(self, body: bytes) -> bool:
        """Whether a Set call gives a shape the type that the last such call gave it: then it tells nothing new."""
        old, _, rest = body.partition(b"\n")
        dtype, _, shape = rest.partition(b"\n")
        if not old.lstrip().startswith(b"tensorDesc") or not dtype.lstrip().startswith(b"dataType"):
            return False
        if self._types.get(shape) == dtype:
            return True
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
        self._records.append(
            Entry(
                source=self._source,
                line=line,
                end_line=end,
                api=header.api,
                body=self._shared(body),
                thread=header.thread,
                stamp=stamp,
                elapsed_ns=elapsed_ns,
                nested=header.nested or body.startswith((b'"', b"name + ")),
                complete=complete,
            )
        )

    # Commands and messages

    def _add_command(
        self,
        number: int,
        tag: str,
        text: str,
        thread: int | None,
        stamp: LocalTime | None = None,
        elapsed_ns: int | None = None,
    ) -> None:
        self._commands[text] += 1
        self._records.append(
            Command(
                source=self._source,
                line=number,
                tag=tag,
                text=text,
                thread=thread,
                stamp=stamp,
                elapsed_ns=elapsed_ns,
            )
        )

    def _message(self, number: int, level: bytes, tag: bytes, text: bytes, raw: bytes) -> None:
        key = (level, tag, text)
        kind = self._kinds.get(key)
        if kind is None:
            kind = classify(level.decode(), tag.decode(errors="replace"), text.decode(errors="replace"))
            if len(self._kinds) < _INTERN:
                self._kinds[key] = kind
        self._counts["level " + kind] += 1
        if kind in KEPT_KINDS:
            self._add_message(number, level.decode(), tag.decode(errors="replace"), text, kind)
        elif raw and len(self._known) < _INTERN and raw.startswith(self._prefix):
            self._known[raw] = "level " + kind

    def _add_message(self, number: int, level: str, tag: str, text: bytes, kind: str, count: bool = False) -> None:
        content = self._texts.get(text)
        if content is None:
            content = text.decode(errors="replace")
            if len(self._texts) < _INTERN:
                self._texts[text] = content
        if level in ("Driver", "Performance", "Debug") or (level == "Error" and not tag):
            self._counts["line " + kind] += 1
        if kind == "key":
            found = re.search(r"[Kk]ey:? (\S+)", content)
            if found is None or found[1] == self._last_key:
                return
            self._last_key = found[1]
        self._records.append(
            Message(
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
        )
