"""One command in a process of its own: confined, and ended with all that it started if it takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterable, Sequence
from typing import NamedTuple

import anyio

GRACE_S = 2.0
"""The process ends itself; if it does not, it is ended so much later."""
MOST_NOTES = 4_000
_PROGRAM = """
import json, sys
given = json.loads(sys.argv[1])
from mio2trace.forked import end_with
end_with(given["parent"])
from mio2trace.serving import confined
from mio2trace import cli
from mio2trace.notes import InputError
try:
    confined.require_own_datasets(given["files"], given["folders"])
except InputError as error:
    sys.exit(f"mio2trace: {error}")
confined.confine(given["folders"], given["room"], given["seconds"], given["memory"])
sys.argv[1:] = given["words"]
cli.main()
"""


class Limits(NamedTuple):
    """Seconds and bytes of memory of a call, and bytes of an answer."""

    seconds: float
    memory: int
    answer: int


class Answer(NamedTuple):
    """What a command printed. ``size``: bytes of all of ``text`` before it was cut. ``code``: None if it was ended."""

    text: str
    size: int
    notes: str
    code: int | None


async def call(
    words: Sequence[str], files: Sequence[str], folders: Sequence[str], where: str, limits: Limits
) -> Answer:
    """Run ``mio2trace WORDS`` in the folder ``where``. ``files``: the inputs among the words, by absolute path."""
    with tempfile.TemporaryDirectory(prefix="mio2trace-", ignore_cleanup_errors=True) as room:
        given = {
            "parent": os.getpid(),
            "words": words,
            "files": files,
            "folders": folders,
            "room": room,
            "seconds": limits.seconds,
            "memory": limits.memory,
        }
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
        process = await anyio.open_process(
            [sys.executable, "-P", "-B", "-c", _PROGRAM, json.dumps(given)],
            stdin=subprocess.DEVNULL,
            cwd=where,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": room, "PYTHONUTF8": "1"},
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = _Bounded(limits.answer), _Bounded(MOST_NOTES)
        code: int | None = None
        try:
            with anyio.move_on_after(limits.seconds + GRACE_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(out.read, process.stdout)
                    tasks.start_soon(err.read, process.stderr)
                code = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.aclose()
        if code == -signal.SIGALRM:
            code = None
        return Answer(out.text(), out.size, err.text(), code)


class _Bounded:
    """The first bytes of a stream, and how many there are in all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = bytearray()
        self.size = 0

    async def read(self, stream: AsyncIterable[bytes]) -> None:
        async for block in stream:
            self.size += len(block)
            self._kept += block[: self._most - len(self._kept)]

    def text(self) -> str:
        """Whole lines only, if it was cut."""
        text = self._kept.decode("utf-8", "replace")
        return text if self.size <= self._most else text[: text.rfind("\n") + 1] or text
