"""User and host names without a form: what the first bytes of an input tell."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mio2trace.patterns import late
from mio2trace.privacy.nobody import OF_NOBODY

_LEARNED: tuple[tuple[str, tuple[bytes, ...], re.Pattern[bytes]], ...] = (
    ("hosts", (b"Running on machine: ",), late(rb"Running on machine: ([\w.-]{2,64})")),
    ("hosts", (b"HOST",), late(rb"(?<!\w)HOST(?:NAME)?=['\"]?([\w.-]{2,64})")),
    ("hosts", (b"@",), late(rb"(?m)^[^\S\n]*\[?[\w.-]{1,32}@([\w.-]{2,64})[: ][~/][^\n$#]*[$#]")),
    ("users", (b"@",), late(rb"(?m)^[^\S\n]*\[?([\w.-]{1,32})@[\w.-]{2,64}[: ][~/][^\n$#]*[$#]")),
    ("users", (b"USER", b"LOGNAME"), late(rb"(?<!\w)(?:USER|LOGNAME|USERNAME)=['\"]?([\w.-]{2,32})")),
    (
        "users",
        (b"user", b"login"),
        late(
            rb"(?<![\w-])(?:--user(?:name)?[ =]|(?:user(?:name)?|login)(?:=|: )['\"]?)([A-Za-z][\w.-]{1,31})(?![\w.-])"
        ),
    ),
    (
        "hosts",
        (b"hostname", b"--host"),
        late(rb"(?<![\w-])(?:--host(?:name)?[ =]|hostname(?:=|: )['\"]?)([A-Za-z][\w.-]{1,63})(?![\w.-])"),
    ),
    (
        "users",
        (b"/home", b"Users"),
        late(rb"(?:/home|/Users|[A-Za-z]:\\{1,2}Users)[/\\]{1,2}([\w.-]{2,32})(?=[/\\\"'\s:])"),
    ),
)
"""(kind, what stands in every match, the name). To look for the text first is a hundred times as fast."""
_SHORTEST_LEARNED = 3


def names_in(head: bytes) -> Iterator[tuple[str, str]]:
    """(kind, name) for each that ``head`` tells; of a host with a domain its first label, too."""
    for kind, marks, pattern in _LEARNED:
        if not any(mark in head for mark in marks):
            continue
        for match in pattern.findall(head):
            name = match.decode("utf-8", "replace").strip(".-")
            for part in (name, name.partition(".")[0]) if kind == "hosts" else (name,):
                if len(part) >= _SHORTEST_LEARNED and part.lower() not in OF_NOBODY and not part.isdigit():
                    yield kind, part
