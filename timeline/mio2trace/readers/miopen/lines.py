"""The lines of a MIOpen log: prefix, header, parameter, command, level line, and the kinds of messages (miopen-log.md 2
to 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

import msgspec

from mio2trace.model.log import LocalTime
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.notes import LOGGED_ERROR, LOGGED_WARNING, NO_DATABASE, Notes
from mio2trace.patterns import late
from mio2trace.readers.caffe import local_time

MAX_PARAMS = 16  # miopen-log.md 3.3: the library never prints more

PREFIX = late(
    rb"(?:(?<!\S)(?:\S++ )?(?P<tid>\d{1,10}) )?MIOpen(?P<backend>\((?:HIP|OpenCL)\))?"
    rb"(?:\s++(?P<elapsed>\d{1,12}\.\d{3}))?(?: \((?P<date>\d{4}-[^()]*+)\))?: ?"
)
ANSI = late(rb"\x1b\[[0-9;?]*[A-Za-z]")
LEVEL = late(rb"(?:\w+ )?(Error|Warning|Info2?|Trace|Fatal) \[([^\]]*)\](?: (.*))?$", re.DOTALL)
COMMAND = late(rb"Command \[([^\]]*)\]\s+(?:\S*/)?MIOpenDriver(?:\.exe)?:?\s+(\S.*)$", re.DOTALL)
OLD_COMMAND = late(  # or a later parameter that lost its prefix
    rb"(?:(?:^|[\s:])(?P<by>miopen\w+):|^Command \[(?P<tag>[^\]]*)\]) "
    rb"(?:\S*/)?MIOpenDriver(?:\.exe)?:? +(?P<text>\S.*)$",
    re.DOTALL,
)
BARE_COMMAND = late(  # behind a prompt, another program's level, marks of Markdown, variables of the environment
    rb"^(?:[^$#\n]{0,200}[$#] |[^\n]{0,200}? - )?[\s>$#`\"'*-]*+(?>(?:[A-Z_][A-Z0-9_]*+=\S*+ +)*)"
    rb"(?P<path>\S*/)?MIOpenDriver(?:\.exe)?:? +(?P<text>[A-Za-z]\w*+(?!.* --help)(?: .*)?)$",
    re.DOTALL,
)
COUNTED = late(rb"(?=[ ]{1,6}\d{1,6} )(?:[ \d]{4}|[ \d]{7})(?<=\d) (?=\S)")
"""A number as wide as `uniq -c` prints it: the number of a thread in an indented log has another width."""
AFTER_COMMAND = late(rb"(?<!\s)\s++(?:[0-9&]?>|[|;#&])")
"""The begin of what a shell adds behind a command: a redirection, a pipe, a comment."""
MARKS = b" \t\r\n`\"'*;\\"
"""Characters that a shell and Markdown put at the end of a command."""
SIGNATURE = late(rb"\s*(?:(?:miopenStatus_t|const\s+char|void|bool|auto|int|size_t)[\s*&]|(?:miopen|std)::)")
PARAM = late(rb"\s*(?:[A-Za-z_][\w.>()\[\]-]*|\".*?\"|name \+ .*?) =(?:\s|$)")
MAY_BE_PART = late(rb"[=}\r\x1b]| : |\A\s*+\Z")
"""A line without a prefix that may be a part of an entry: a parameter, the next line of a value, or the end."""
REDUCE_PART = late(rb"\s*[A-Z][\w ]* : -?\d+\s*$")
PERFORMANCE = (b'{"solution"', b'{"performance"')
KEY = late(r"[Kk]ey:? (\S+)")
_RANGE = late(rb"s_api = (\w+)((?: \| .*)?)$", re.DOTALL)
_FUNCTION = late(rb"[\w~<>]*")
_DATE = late(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})")
WORDS = (
    b"MIOpen", b"miopen", b"l_name = ", b"s_api = ", b" Verif", b" descr", b" Failed: ", b"FAILED",
    b" too large", b"Memory access fault", b"(core dumped)", b"(): invalid ", b"HSA_STATUS_ERROR", b"HIP error: ",
    b"HIP out of memory", b": error: ", b"fatal error: ", b" generated", b"-F=", b"-B=", b"-W=", b"-F_", b"-B_", b"-W_",
)  # fmt: skip
BEGINNINGS = (
    *PERFORMANCE, b"rnn", b"Forward RNN", b"Backward Data RNN", b"Backward Weights RNN", b"stats: ", b"GPU Kernel",
    b"PRNG seed", b"Warm-up: ", b"- id: ", b"SetTensor", b"CopyTensor", b"ScaleTensor",
)  # fmt: skip
_LONGEST_OF_NONE = 6
"""Bytes; shorter lines, of which there may be many, are neither the library's nor the driver's."""
DRIVER_OUTPUT = late(
    rb"^(?:MIOpen (?:Forward|Backward)|GPU Kernel|stats: |PRNG seed|Warm-up: |- id: \d|.* Verif(?:y|ies) "
    rb"|(?:Forward|Backward \w+) RNN time )"
)
# Output of some builds, with their spelling "descritor" (miopen-log.md 2.3)
TENSOR_PRINT = late(rb"^(?:(?:Set|Copy|Scale)Tensor|(?:src |dst )?(?:real|flat) descrip?tor: [\d, ]++)\s*$")
_FAILURES: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (late(rb"(?<![\w/\\])MIOpen Error: (?P<text>.*)", re.DOTALL), "error"),
    (
        late(
            rb"^(?P<text>(?:(?:Forward|Backwards?|final|difference at|CTC|ReduceTensor\(\)) "
            rb"(?>[\w *]*?(?:Failed: |FAILED\b))|Run\w+\(\) FAILED\b|Difference\b[^\n]{1,200}? too large\b).*)",
            re.DOTALL,
        ),
        "verification failed",
    ),
    (
        late(
            rb"(?P<text>Memory access fault by GPU.*|\b\w++ \(core dumped\)"
            rb"|\b(?:free|realloc|munmap_chunk)\(\): invalid \w++|HSA_STATUS_ERROR.*|HIP error: .*|HIP out of memory.*"
            rb"|\bmiopenStatus(?!Success|_t\b)[A-Z]\w++.*|Check failed: \w++ == miopenStatusSuccess.*)",
            re.DOTALL,
        ),
        "crash",
    ),
    (
        late(
            rb"(?P<text>:\d++:\d++: (?:fatal )?error: .*|^\d++ errors? generated.*"
            rb"|^\d++ warnings? and \d++ errors? generated.*)",
            re.DOTALL,
        ),
        "compiler error",
    ),
)
"""Output without a level that reports an error (miopen-log.md 2.3), by kind. The text before ``text`` comes from
another program: a rank, a time, the type of the exception."""
CLOSE = frozenset((b"}\n", b"}\r\n", b"}"))
NOT_KEPT = late(
    r"miopen(?=\w*+\Z)"  # the rest is one word, so the search for these parts never goes on behind it
    r"(?:Destroy\w*|Get\w*|Query\w*|EnableProfiling|\w*GetWorkSpaceSize\w*|\w*WorkSpaceSize|\w*WorkspaceSize\w*"
    r"|Create\w*Descriptor\w*|CreateOperatorArgs|Create(?:WithStream)?|Derive\w*|SetStream|SetAllocator"
    r"|\w*SolutionCount\w*|(?:Load|Save)Solution|Init\w*Descriptor"
    r"|Set(?!DropoutDescriptor)\w*(?:Pooling|Activation|LRN|RNN|Dropout|CTC|Convolution|ReduceTensor)\w*)"
)
"""Calls that show nothing about an operation."""


def parse_range(text: str) -> tuple[str, bytes] | None:
    """Return (api, body) of a ROCTX range text ``s_api = miopenX | name = value | ...`` (miopen-log.md 9.4)."""
    found = _RANGE.search(text.encode())
    if found is None:
        return None
    parts = [part for part in found[2].split(b" | ") if part.strip(b" |")]
    return api_name(found[1]), b"".join(part.strip(b" |") + b"\n" for part in parts)


def api_name(name: bytes) -> str:
    """Return a function's name without the suffix of wrapper builds (miopen-log.md 9.5); ``unnamed`` for an impossible
    name. A word in small letters may be the beginning of an address (``bob(at)example``): names of the library have a
    capital."""
    is_one = _FUNCTION.fullmatch(name) is not None and name != name.lower()
    return name.decode().removesuffix("_impl") if is_one else "unnamed"


def is_of_interest(line: bytes) -> bool:
    """Return whether a line outside of any entry may be one of ours."""
    if len(line) <= _LONGEST_OF_NONE:
        return False
    if line.startswith(BEGINNINGS):
        return True
    for word in WORDS:  # noqa: SIM110 - called a million times: twice as fast as `any`
        if word in line:
            return True
    return False


def failure(text: bytes) -> tuple[bytes, str] | None:
    """Return (text, kind) of a line without a level that reports an error."""
    for pattern, kind in _FAILURES:
        failed = pattern.search(text)
        if failed is not None:
            return failed["text"].lstrip(b": "), kind
    return None


def debug_launches(text: bytes) -> Iterator[bytes]:
    """Return the text after ``kernel_name = `` of each ``kernel_name = K, ... local_work_dim = {...}`` in a line."""
    name, size = b"kernel_name = ", b"local_work_dim = {"
    at = 0
    while (end := text.find(size, at)) >= 0 and (close := text.find(b"}", end) + 1):
        begin = text.rfind(name, at, end)
        if begin >= 0:
            yield text[begin + len(name) : close]
        at = close


def type_and_shape(body: bytes) -> tuple[bytes, bytes]:
    """Return the lines of a Set call that give the type and the shape; none for a call of another form."""
    old, _, rest = body.partition(b"\n")
    dtype, _, shape = rest.partition(b"\n")
    if not old.lstrip().startswith(b"tensorDesc") or not dtype.lstrip().startswith(b"dataType"):
        return b"", b""
    return dtype, shape


def stamp_of(date: bytes | None) -> LocalTime | None:
    """Read ``2026-11-20T11:39:11.123Z``, which is local time in spite of the Z."""
    found = _DATE.search(date) if date else None
    return None if found is None else _local_time(*found.groups())


_local_time = lru_cache(maxsize=1 << 12)(local_time)  # a log has many lines per millisecond, which share their stamp


Subject = str
"""The subjects of messages; `SUBJECTS` is in the order of interest for a person."""

SUBJECTS: tuple[Subject, ...] = (
    "errors", "warnings", "search", "workspace", "problems", "calls", "launches", "databases", "builds", "environment",
    "others",
)  # fmt: skip


# -- The kinds of messages: one row per kind ---------------------------------------------------------------------------
#
# A row has the words that identify such messages, their subject, and the place that describes the format (a section
# of miopen-log.md) or a public sample that shows it (its number).


class Kind(msgspec.Struct, frozen=True):
    """A kind of message. ``tags``: functions that print it, each with a text that the message must contain (empty: any
    text). ``text``: a pattern for messages of all functions. ``function``: a pattern for the function's name, if no
    text decided. ``kept``: the messages show something about an operation, or report an error; others are only
    counted."""

    name: str
    subject: Subject
    documented: str
    tags: Mapping[str, str] = MappingProxyType({})
    text: re.Pattern[str] | None = None
    function: re.Pattern[str] | None = None
    kept: bool = False


def _tags(*names: str, holding: str = "") -> dict[str, str]:
    return dict.fromkeys(names, holding)


_GEMM_CALLS = ("CallGemm", "CallGemmTimeMeasure", "CallGemmStridedBatched", "CallGemmStridedBatchedSequential")

# The order of checks: of the rows of one tag, the first whose words are in the text; then the texts; then the
# functions.
KINDS: tuple[Kind, ...] = (
    Kind("error", "errors", "2.2, 2.3", kept=True),
    Kind("search failed", "errors", "samples 7, 30",
          tags=_tags("FindSolutionImpl", holding="Search failed"), kept=True),
    Kind("verification failed", "errors", "2.3; samples 20, 32", kept=True),
    Kind("crash", "errors", "2.3; samples 46, 63", kept=True),
    Kind("compiler error", "errors", "2.3; sample 67", kept=True),
    Kind("warning", "warnings", "2.2", kept=True),
    Kind("workspace warning", "warnings", "8.3; samples 54, 56", tags=_tags("IsEnoughWorkspace"), kept=True),
    Kind("launch", "launches", "8.3; samples 8, 43", tags=_tags("run"), kept=True),
    Kind("launch name", "launches", "sample 8", tags=_tags("Invoke")),
    Kind("gemm", "launches", "8.3; samples 20, 43", tags=_tags(*_GEMM_CALLS, holding="gemm_desc"), kept=True),
    Kind("gemm library", "launches", "8.3; sample 46", tags=_tags(*_GEMM_CALLS), kept=True),
    Kind("invoker", "calls", "8.3, 8.4; sample 43", tags=_tags("GetInvoker"), kept=True),
    Kind("execution", "calls", "8.3; samples 20, 50",
          tags=_tags("ConvolutionForward", "ConvolutionBackwardData", "ConvolutionBackwardWeights", holding="algo = "),
          kept=True),
    Kind("immediate", "calls", "8.3",
          tags=_tags("ConvolutionForwardImmediate", "ConvolutionBackwardImmediate", "ConvolutionWrwImmediate",
                     holding="solver_id = "),
          kept=True),
    Kind("summary", "calls", "9.1; sample 52", tags=_tags("LogConvolutionExecution", holding="Problem="), kept=True),
    Kind("driver", "calls", "2.3; samples 32, 38", kept=True),
    Kind("performance", "calls", "9.3; sample 58", kept=True),
    Kind("chosen", "search", "8.2; samples 12, 20, 50",
          tags=_tags("FillFindReturnParameters", "FindConvolution", holding="Chosen Algorithm"),
          text=late(r"Chosen Algorithm: "), kept=True),
    Kind("search", "search", "8.2; samples 14, 48",
          text=late(r"^requestAlgoCount = "), function=late(r"^FindConv(?:Fwd|BwdData|BwdWeights)Algorithm$"),
          kept=True),
    Kind("measuring", "search", "8.2; samples 14, 65",
          tags=_tags("TryLoad", holding="Find-db regenerating"), kept=True),
    Kind("result", "search", "8.2; samples 12, 50",
          tags=_tags("FindConvolution", holding="Algo"), text=late(r"^miopen(?=\w++\s)\w+?Algo\w")),
    Kind("selected", "search", "8.2; sample 25", tags=_tags("EvaluateInvokers", holding="Selected: ")),
    Kind("benchmark", "search", "8.2; samples 25, 71",
          tags=_tags("EvaluateInvokers", holding=": "),
          text=late(r"^[\w<>-]+: .*: \S+ (?:<|>=) \S+$|^Find (?:Start|Ended): ")),
    Kind("registered", "search", "8.2; sample 43", tags=_tags("SetAsFound1_0"), kept=True),
    Kind("invoker registered", "search", "8.2; sample 26", tags=_tags("Register"), kept=True),
    Kind("prepare", "search", "8.3; sample 71", tags=_tags("PrepareInvoker")),
    Kind("tuning", "search", "8.2; sample 30",
          tags={**_tags("Monitor", "GenericSearch", "GetAllConfigs"), "FindSolutionImpl": "Starting search"}),
    Kind("candidate", "search", "8.2; samples 16, 19, 36",
          tags=_tags("FindSolutionImpl", "SearchForAllSolutions"),
          text=late(r"[Nn]ot applicable|: Success|: Skipped|[Nn]ot searchable|\(not searchable\)|granularity_loss")),
    Kind("find-db insert", "problems", "8.2, 8.5; samples 10, 12",
          tags=_tags("SetValues", holding="content inserted: "), kept=True),
    Kind("find-db insert", "problems", "miopen-side-files.md 3",
          tags=_tags("SetValues", holding="content overwritten: "), kept=True),
    Kind("find-db record", "problems", "miopen-side-files.md 3", kept=True),
    Kind("kernel key", "problems", "8.3, 8.5; sample 20",
          tags=_tags("GetKernels", holding="key: miopenConvolution"), kept=True),
    Kind("key found", "problems", "8.2; sample 6", text=late(r"^(?:Key match|Read record|Contents found)")),
    Kind("perf-db key", "problems", "samples 16, 23", tags=_tags("impl", holding="[")),
    Kind("key", "problems", "8.2, 8.5; samples 6, 14, 69", text=late(r"Looking for key"), kept=True),
    Kind("solutions", "search", "8.2; samples 43, 69",
          tags=_tags("GetFound1_0"),
          text=late(r"^id: \d+|Estimated WTI|Fallback path|maxSolutionCount|TunaNet|Found solution"),
          function=late(r"Solutions|Solution$|Fallback|WTI")),
    Kind("step", "launches", "8.3", text=late(r"^Executing the ")),
    Kind("arguments", "launches", "8.3; sample 71", text=late(r"^ ?N=\d++ (?>.*?C=\d++ ).*?K=\d")),
    Kind("version", "environment", "8.1; sample 48",
          tags=_tags("AmdRocmMetadataVersionDetect", "DetectAmdRocmMetadataVersion"), kept=True),
    Kind("device", "environment", "8.1; sample 48", tags=_tags("get_device_name"), kept=True),
    Kind("stream", "environment", "8.1; sample 48", tags=_tags("Handle", "SetStream")),
    Kind("environment", "environment", "8.1; samples 36, 65",
          text=late(r"(?<!\w)(?>\w*?MIOPEN_)\w++ ?=|^HIPRTC v|^COMgr v|HCC base|HIP_VERSION")),
    Kind("timing", "databases", "8.3; samples 26, 41",
          tags=_tags("Measure", "Log"), text=late(r" time: |Time, ms|time, ms")),
    Kind("workspace", "workspace", "8.2; samples 19, 36, 65",
          tags=_tags("ForwardGetWorkSpaceSize", "BackwardDataGetWorkSpaceSize", "BackwardWeightsGetWorkSpaceSize",
                     "GetWorkSpaceSize"),
          text=late(r"(?i)workspace"), function=late(r"[Ww]ork[Ss]pace")),
    Kind("candidate", "search", "8.2; samples 12, 65",
          function=late(r"IsApplicable|PerformanceConfig|[HE]uristic|Config|Solver|Context")),
    Kind("database", "databases", "8.2; samples 16, 23, 41",
          tags=_tags("impl", "Prepare", "Exec"),
          text=late(r"(?i)database|find-db|perf db|perf_db|\bdb\b|record|prefetch|file is|filesystem|unreadable"
                    r"|ndirectory"),
          function=late(r"Db|DB|SQLite|Record|Load|Store|Path|File|Cache|Prefetch|Validate|Filesystem|Ram")),
    Kind("kernel cache", "builds", "8.3; samples 8, 14",
          tags=_tags("GetKernels", "AddKernel", "AddKernelDumpKernelParams")),
    Kind("build", "builds", "8.3; samples 67, 71",
          text=late(r"(?i)kernel|binary|compil|source|\.s\b|\.cl\b|\.cpp\b"),
          function=late(r"Build|Compile|Binary|Kernel|Program|HIPRTC|COMgr|Link|Assemble")),
    Kind("environment", "environment", "8.1; samples 27, 36",
          function=late(r"Version|Mode|Env|Device|Handle|Stream|hip_mem|Policy|Tuning")),
    Kind("step", "launches", "8.3", text=late(r"(?i)descriptor|descritor"), function=late(r"Tensor|Reduce")),
    Kind("tensor print", "launches", "2.3; sample 29"),
    Kind("rnn command repeated on standard output", "calls", "7.3; sample 45"),
    Kind("driver command repeated on standard output", "calls", "7.3"),
    Kind("trace", "others", "2.2; sample 23"),
    Kind("other", "others", "2.2"),
)  # fmt: skip

KEPT_KINDS = frozenset(kind.name for kind in KINDS if kind.kept)
"""Messages that show something about an operation, or that report an error; others are only counted."""
ERRORS = frozenset(kind.name for kind in KINDS if kind.subject == "errors")
WARNINGS = frozenset(kind.name for kind in KINDS if kind.subject == "warnings")

_BY_TAG: dict[str, list[tuple[str, str]]] = {}
for _kind in KINDS:
    for _tag, _part in _kind.tags.items():
        _BY_TAG.setdefault(_tag, []).append((_part, _kind.name))
_BY_TEXT = [(kind.text, kind.name) for kind in KINDS if kind.text is not None]
_BY_FUNCTION = [(kind.function, kind.name) for kind in KINDS if kind.function is not None]
_PRINTED_AS_WARNINGS = frozenset(("chosen", "benchmark", "tuning"))
"""Progress of a search: the library prints it at the level of warnings so that people see it."""


def classify(level: str, function: str, text: str) -> str:
    """Return the kind of a level line; ``other`` if it is unknown. Digits change nothing."""
    tagged = next((name for part, name in _BY_TAG.get(function, ()) if part in text), "")
    if level in ("Error", "Fatal"):
        return tagged if tagged in ERRORS else "error"
    name = tagged or next((name for pattern, name in _BY_TEXT if pattern.search(text)), "")
    if level == "Warning":
        return name if name in WARNINGS or name in _PRINTED_AS_WARNINGS else "warning"
    if name:
        return name
    if level == "Trace":
        return "trace"
    return next((name for pattern, name in _BY_FUNCTION if pattern.search(function)), "other")


_NO_DATABASE = "File is unreadable"
"""Warnings of the library if a user's find-db or perf-db has not been written yet."""


def note_alarms(log: MiopenLog, file: str, notes: Notes) -> None:
    """Add notes on the errors and warnings in a log, with their lines."""
    alarms = ERRORS | WARNINGS
    if not any(count.partition(" ")[2] in alarms for count, _ in log.counts):
        return
    for record in log.records:
        if type(record) is Message and record.kind in alarms:
            place = f"{file}:{record.line}"
            if record.kind in ERRORS:
                notes.add(LOGGED_ERROR, place)
            elif record.text.startswith(_NO_DATABASE):
                notes.remark(NO_DATABASE, place)
            else:
                notes.add(LOGGED_WARNING, place)
