"""The lines of a MIOpen log: prefix, header, parameter, command, level line (miopen-log.md 2 to 8)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mio2trace.model.log import LocalTime
from mio2trace.patterns import late

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
AFTER_COMMAND = late(rb"(?<!\s)\s++(?:[0-9&]?>|[|;#&])")
"""The begin of what a shell adds behind a command: a redirection, a pipe, a comment."""
MARKS = b" \t\r\n`\"'*;\\"
"""What a shell and Markdown put at the end of a command."""
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
    *PERFORMANCE, b"rnn", b"stats: ", b"GPU Kernel", b"PRNG seed", b"Warm-up: ", b"- id: ",
    b"SetTensor", b"CopyTensor", b"ScaleTensor",
)  # fmt: skip
_LONGEST_OF_NONE = 6
"""Bytes; shorter lines, of which there may be many, are neither the library's nor the driver's."""
DRIVER_OUTPUT = late(
    rb"^(?:MIOpen (?:Forward|Backward)|GPU Kernel|stats: |PRNG seed|Warm-up: |- id: \d|.* Verif(?:y|ies) )"
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
    if found is None:
        return None
    year, month, day, hour, minute, second, milli = (int(part) for part in found.groups())
    return LocalTime(year, month, day, ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + milli * 1_000_000)
