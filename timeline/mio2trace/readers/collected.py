"""Logs as collectors store them: each line has a prefix of a container, of the journal or of a launcher, or has
colours.

    miopen-1  | MIOpen(HIP): miopenStatus_t ...             docker compose, podman-compose
    2026-11-20T11:34:29.509450123Z stderr F MIOpen(HIP)...  docker logs -t, Kubernetes, GitHub's runners
    [2026-11-20T11:34:29.509Z] MIOpen(HIP): ...             Jenkins; with blanks for the T and the brackets, others
    Nov 20 11:34:29 node07 train[742]: MIOpen(HIP): ...     the journal, syslog; without host and program, ts; rsyslog
                                                            writes 2026-11-20T11:34:29.509450+01:00 for the time
    [1,0]<stderr>:MIOpen(HIP): ...                          mpirun --tag-output, in newer ones with a blank
    [default0]:MIOpen(HIP): ...                             torchrun --tee; [rank0]: of PyTorch, with a blank
    0: MIOpen(HIP): ...                                     srun --label
    (RayWorkerWrapper pid=742) MIOpen(HIP): ...             Ray, vLLM; with an address, in colours
    {"log":"MIOpen(HIP): ...\\n","stream":"stderr","time":"2026-11-20T11:34:29.509450123Z"}    Docker's own file

If two handlers of one logger print every line twice, the second copy becomes empty. Lines stay lines, so their numbers
are those of the file. If the prefixes name several processes, the number of the process replaces the prefix (`WRITER`):
several processes may print equal ids, and the lines of their entries may alternate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, groupby

import msgspec

from mio2trace.patterns import late

_DIGIT, _SMALL = b"0123456789", b"abcdefghijklmnopqrstuvwxyz"
_LAUNCHERS = rb"\[(?P<who>\d{1,9},\d{1,9})\]<std(?:err|out|diag)>:", rb"\[(?P<who>(?:default|rank)\d{1,9})\]:"
_FORMS = (
    (
        b"[" + _DIGIT,
        rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
        rb" [\w.-]{1,64} (?P<who>[\w./@-]{1,64}\[\d{1,10}\]): ",
        rb"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? (?:std(?:err|out) [FP] )?",
    ),
    (
        _SMALL.upper(),
        rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} (?P<who>[\w./@-]{1,64}(?:\[\d{1,10}\])?): ",
        rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ",
    ),
    *((b"[", launcher + rb"(?: |(?!.))", launcher) for launcher in _LAUNCHERS),
    (_SMALL + _SMALL.upper(), rb"(?P<who>[A-Za-z][\w.-]{0,63}) {1,64}\| "),
    (b" " + _DIGIT, rb" {0,9}(?P<who>\d{1,6}): "),
    (
        b"\x1b(",
        rb"(?:\x1b\[[\d;]{0,9}m)?\((?P<who>\w{1,64} pid=\d{1,10}(?:, ip=[\w.:]{1,64})?)\)(?:\x1b\[[\d;]{0,9}m)? ",
    ),
)
"""The bytes with which a line may begin; then forms, each of which fits all that the forms before it fit."""
WRITER = b"\x1e"
"""These bytes enclose the number of the process before a line."""
FORMS = tuple(
    (
        WRITER + begins,
        tuple(late(rb"^(?P<own>(?:\x1e\d+\x1e)?)(?:" + form + rb")", re.MULTILINE) for form in forms),
    )
    for begins, *forms in _FORMS
)
_DIGITS = late(rb"\d+")
_JSON_FILE = late(rb'\{"log":"(?:[^"\\]|\\.){0,60000}","stream":"std(?:err|out)"')
_COLOUR = late(rb"\x1b\[[0-9;?]*[A-Za-z]")
_ESCAPE = b"\x1b"
_MOST_LINES = 0.9
"""The part of the lines that must share a prefix; a line that was appended to another one has none."""
_FEWEST = 4
_MOST_LOOKED_AT = 400
_LONGEST_LINE = 16 << 20
"""The most bytes to wait for the end of a line."""
_NESTED = 2
"""The most nested prefixes: a collector may pass on the output of another one."""


class _Line(msgspec.Struct):
    """A line of Docker's own file. A line longer than 16 KiB becomes several, of which only the last one has an end."""

    log: str


_decode_line = msgspec.json.Decoder(_Line).decode


def is_docker_file(head: bytes) -> bool:
    """Return whether every line is a JSON object of Docker."""
    return _JSON_FILE.match(head) is not None


def plain_lines(head: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Return ``blocks`` without prefixes; ``head``: their first bytes."""
    if is_docker_file(head):
        lines = (part + b"\n" for part in head.split(b"\n")[:-1])
        head = b"".join(map(_of_docker, lines))
        blocks = (b"".join(map(_of_docker, block.splitlines(keepends=True))) for block in _whole_lines(blocks))
    for _ in range(_NESTED):
        form = _form_of(head)
        if form is None:
            break
        without = partial(_without, form, _numbers(form, head))
        head, blocks = without(head), map(without, _whole_lines(blocks))
    return _without_colours(_once(blocks) if _is_twice(head) else blocks)


def _is_twice(head: bytes) -> bool:
    """Return whether every line that is checked comes in a pair of equal lines."""
    counts = [len(list(same)) for _, same in groupby(head.split(b"\n", _MOST_LOOKED_AT)[:-1])][:-1]
    return len(counts) >= _FEWEST and sum(count % 2 == 0 for count in counts) >= _MOST_LINES * len(counts)


def _once(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Replace the second line of each pair of equal lines by an empty line."""
    before = b""
    for block in _whole_lines(blocks):
        lines = block.splitlines(keepends=True)
        for number, line in enumerate(lines):
            if line == before:
                lines[number] = b"\n"
                before = b""
            else:
                before = line
        yield b"".join(lines)


def _form_of(head: bytes) -> re.Pattern[bytes] | None:
    """Return the first form that most lines have."""
    lines = [line for line in head.split(b"\n", _MOST_LOOKED_AT)[:-1] if line.strip()]
    if len(lines) < _FEWEST:
        return None

    def are(fit: Callable[[bytes], object]) -> bool:
        return sum(map(bool, map(fit, lines))) >= _MOST_LINES * len(lines)

    for begins, forms in FORMS:
        if are(lambda line, begins=begins: line[0] in begins) and are(forms[-1].match):  # type: ignore[misc]
            return next(form for form in forms if are(form.match))
    return None


def _numbers(form: re.Pattern[bytes], head: bytes) -> dict[bytes, int]:
    """Return a number for each process, if there are several."""
    if "who" not in form.groupindex:
        return {}
    named = dict.fromkeys(match["who"] for match in form.finditer(head))
    last = [_DIGITS.findall(name)[-1:] for name in named]
    own = {name: int(digits[0]) for name, digits in zip(named, last, strict=True) if digits and len(digits[0]) < 19}
    if len(set(own.values())) < len(named):
        own = {name: number for number, name in enumerate(named)}
    return own if len(named) > 1 else {}


def _without(form: re.Pattern[bytes], numbers: dict[bytes, int], block: bytes) -> bytes:
    """Return lines without the prefix, or with the number of the process in its place if there are several."""
    if not numbers:
        return form.sub(rb"\g<own>", block)
    return form.sub(lambda line: b"\x1e%d\x1e" % numbers.setdefault(line["who"], len(numbers)), block)


def _without_colours(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        if _ESCAPE not in block:
            yield block
            continue
        yield from (_COLOUR.sub(b"", one) for one in _whole_lines(chain((block,), blocks)))
        return


def _whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes; each piece except the last one ends with a line."""
    parts: list[bytes] = []
    size = 0
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if not end and size < _LONGEST_LINE:
            parts.append(block)
            size += len(block)
            continue
        end = end or len(block)
        yield b"".join([*parts, block[:end]])
        parts = [block[end:]]
        size = len(parts[0])
    if any(parts):
        yield b"".join(parts)


def _of_docker(line: bytes) -> bytes:
    """Return the text that a program printed; a line that is no such object stays unchanged."""
    try:
        return _decode_line(line).log.encode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return line
