"""The operations of a log as MIOpenDriver lines: each line once with its count, slowest (or most frequent) first
(miopen-log.md 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from mio2trace.ops.command import offered, offered_bench, refusal
from mio2trace.ops.families.gemm import Library
from mio2trace.ops.operation import Operation
from mio2trace.ops.problem import Form
from mio2trace.outgoing import count, shortened, visible


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One command. ``calls``: how many calls executed it. ``searches``: the number of find calls, which launch
    candidates but no operation.

    ``kernel_ns``: kernel time of the calls per steady iteration, None without a profile.
    """

    command: str
    calls: int
    searches: int
    kernel_ns: float | None = None

    def __str__(self) -> str:
        """The line for a shell; count and time are a comment."""
        if not self.calls:
            times = "once" if self.searches == 1 else f"{self.searches} times"
            return f"{self.command} # searched {times}, not run"
        time = "" if self.kernel_ns is None else f", {self.kernel_ns / 1e6:.3f} ms in a steady iteration"
        return f"{self.command} # {count(self.calls, 'call')}{time}"


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Operations without a command: their names, the reason, and ``text``, the first log text in place of a command."""

    primitive: str
    reason: str
    count: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.count} x {self.primitive}: {self.reason}" + (f": {self.text}" if self.text else "")


_SHOWN = 100
"""The most characters of a logged command that is refused."""


def lines(
    operations: Iterable[Operation],
    form: Form = "newest",
    kernel_ns: Mapping[int, float] | None = None,
    library: Library = "hipblaslt",
) -> tuple[list[Line], list[Refused]]:
    """Return the commands in the form of a version (slowest first, then most frequent, then in log order), and the
    operations without a command.

    ``library``: the library whose bench program runs matrix products. ``kernel_ns``: with a profile, the time of each
    operation per steady iteration, by index.
    """
    time: dict[str, float] = {}
    calls: Counter[str] = Counter()
    searches: Counter[str] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    texts: dict[tuple[str, str], str] = {}
    made: dict[object, tuple[str | None, str]] = {}
    order: dict[str, None] = {}
    for operation in operations:
        if operation.problem is not None and operation.problem.has_bench:
            command, reason = offered_bench(operation.problem, library)
        elif form == "newest" or operation.problem is None:
            command, reason = operation.command, operation.command_reason
        else:
            key = (operation.problem, operation.dtype)
            if key not in made:
                made[key] = offered(operation.problem, form)
            command, reason = made[key]
        if command is None:
            primitive = "ops of the framework" if operation.is_plain else operation.primitive
            what = primitive, reason or "the log does not show the shapes"
            refused[what] += 1
            if what not in texts:
                text = operation.logged_command
                texts[what] = shortened(visible(text), _SHOWN) if text and refusal(text) else ""
        else:
            order.setdefault(command)
            (searches if operation.phase == "find" else calls)[command] += 1
            if kernel_ns is not None and operation.phase == "run":
                time[command] = time.get(command, 0) + kernel_ns.get(operation.index, 0)
    found = [
        Line(
            command=command,
            calls=calls[command],
            searches=searches[command],
            kernel_ns=None if kernel_ns is None else time.get(command, 0),
        )
        for command in order
    ]
    found.sort(key=lambda line: (-(line.kernel_ns or 0), -line.calls, -line.searches))
    return found, [
        Refused(primitive=what[0], reason=what[1], count=count, text=texts[what])
        for what, count in refused.most_common()
    ]
