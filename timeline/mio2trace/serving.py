"""Answers for other programs: a server of the Model Context Protocol (MCP) that runs the commands.

Each tool runs one command in its own process, confined, and returns what it prints. The process is ended, with all
processes that it started, if it takes too long.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterable, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import TextContent, ToolAnnotations
from pydantic import Field

import mio2trace
from mio2trace.batch.confined import is_below, processors
from mio2trace.notes import InputError, OptionError
from mio2trace.outgoing import count
from mio2trace.privacy import Cleaner
from mio2trace.queries import shipped

GRACE_S = 2.0
"""Seconds after the limit: the process ends itself; if it does not, it is ended then."""
MOST_NOTES = 4_000
_PROGRAM = """
import json, sys
given = json.loads(sys.argv[1])
from mio2trace.batch.confined import confine, end_with, require_own_datasets
end_with(given["parent"])
from mio2trace import cli
from mio2trace.notes import InputError
try:
    require_own_datasets(given["files"], given["folders"])
except InputError as error:
    sys.exit(f"mio2trace: {error}")
confine(given["folders"], given["room"], given["seconds"], given["memory"])
sys.argv[1:] = given["words"]
cli.main()
"""


class Limits(NamedTuple):
    """Seconds and bytes of memory of a call, and bytes of an answer."""

    seconds: float
    memory: int
    answer: int


class Answer(NamedTuple):
    """The output of a command. ``size``: bytes of ``text`` before it was cut. ``code``: None if the command was
    ended."""

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
    """Keeps the first bytes of a stream, and counts all of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = bytearray()
        self.size = 0

    async def read(self, stream: AsyncIterable[bytes]) -> None:
        async for block in stream:
            self.size += len(block)
            self._kept += block[: self._most - len(self._kept)]

    def text(self) -> str:
        """Return the text; only whole lines if it was cut."""
        text = self._kept.decode("utf-8", "replace")
        return text if self.size <= self._most else text[: text.rfind("\n") + 1] or text


# -- The folders that may be read: a client's path must be below one of them, or it is refused -------------------------

MOST_NAMES = 100_000
"""The most files and folders that a listing inspects."""


class Folders:
    """Resolves paths of a client. Paths outside of ``folders`` are refused, also links that lead out of them."""

    def __init__(self, folders: Sequence[str]) -> None:
        for folder in folders:
            if not os.path.isdir(folder):
                raise OptionError(f"{folder}: is not a folder; expected folders that hold profiles and logs")
        self._given = [os.path.abspath(folder) for folder in folders]
        self.real = [os.path.realpath(folder) for folder in folders]

    def resolve(self, path: str) -> str:
        """Return the absolute path of an existing file or folder. A relative ``path`` begins in one of the folders.

        Raises `InputError` for a path that is outside, ambiguous, or missing.
        """
        if not path or "\0" in path:
            raise InputError(f"{path!r}: no path")
        if ".." in path.split(os.sep):
            raise InputError(f"{path}: '..' is not allowed in a path")
        found = [place for place in self._candidates(path) if os.path.lexists(place)]
        if not found:
            raise InputError(f"{path}: not below the folders of this server; the tool 'files' lists what is")
        if len({os.path.realpath(place) for place in found}) > 1:
            raise InputError(f"{path}: is in several folders of this server; expected the absolute path")
        if not self.holds(found[0]):
            raise InputError(f"{path}: a link that leads out of the folders of this server")
        return found[0]

    def holds(self, path: str) -> bool:
        """Return whether a path, with links resolved, is in one of the folders."""
        return is_below(os.path.realpath(path), self.real)

    def folder_of(self, path: str) -> str:
        """Return the folder that contains a resolved path."""
        return next(real for real in self.real if is_below(path, [real]))

    def listing(self) -> Iterator[str]:
        """Return files and folders, relative to their folder, without links that lead out."""
        looked_at = 0
        for real in self.real:
            for folder, folders, files in os.walk(real):
                folders[:] = sorted(name for name in folders if name[0] != ".")
                for name in [*(f"{name}/" for name in folders), *sorted(files)]:
                    looked_at += 1
                    if looked_at > MOST_NAMES:
                        return
                    path = os.path.join(folder, name)
                    if name[0] != "." and self.holds(path):
                        yield os.path.relpath(path, real) + ("/" if name.endswith("/") else "")

    def _candidates(self, path: str) -> Iterator[str]:
        for given, real in zip(self._given, self.real, strict=True):
            if not os.path.isabs(path):
                yield os.path.join(real, os.path.normpath(path))
                continue
            for folder in (given, real):
                if is_below(os.path.normpath(path), [folder]):
                    yield os.path.join(real, os.path.relpath(os.path.normpath(path), folder))
                    break


# -- The tools of the server -------------------------------------------------------------------------------------------

_ABOUT = (
    "Reads GPU profiles (PyTorch profiler traces, rocprofv3/rocpd, RPD, dv/dt) and MIOpen or Caffe logs below the"
    " folders that the server was started with. Begin with 'files', then 'report'. All tools only read. Paths are"
    " relative to the folder. The files of one run (its log and its profile) are given together."
)

Texts = list[TextContent]
Files = Annotated[list[str], Field(min_length=1, max_length=1000, description="Files of one run, or its folder.")]
Columns = Annotated[str, Field(description="Names of columns, with commas between them; empty: the usual ones.")]
Conditions = Annotated[
    tuple[str, ...], Field(max_length=20, description="Rows with all of these, such as 'kernel_ms>1', 'name~gemm'.")
]
Top = Annotated[int, Field(ge=1, le=100_000, description="The first rows only.")]


def server(folders: Folders, limits: Limits) -> MCPServer[None]:
    """A server of the tools, not yet connected to anything."""
    made: MCPServer[None] = MCPServer(
        "mio2trace", instructions=_ABOUT, version=mio2trace.__version__, log_level="WARNING"
    )
    tools = Tools(folders, limits)
    for tool in (
        tools.files, tools.report, tools.layers, tools.ops, tools.kernels, tools.query, tools.compare, tools.driver,
    ):  # fmt: skip
        more = f" Stored queries: {', '.join(shipped())}." if tool == tools.query else ""
        made.add_tool(
            tool,
            description=" ".join(f"{tool.__doc__}{more}".split()),
            annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False),
            structured_output=False,
        )
    return made


class Tools:
    """The tools that a client can call. The client reads the first line of each docstring."""

    def __init__(self, folders: Folders, limits: Limits) -> None:
        self._folders = folders
        self._limits = limits
        self._at_once = anyio.Semaphore(max(1, processors()))

    async def files(self) -> Texts:
        """List the files and folders that can be read, one path per line."""
        cleaner = Cleaner()
        names = await anyio.to_thread.run_sync(lambda: list(self._folders.listing()))
        shown = [name for name in names if name.isprintable() and cleaner.quoted(name) == name]
        text = "".join(f"{name}\n" for name in shown)
        kept = text.encode()[: self._limits.answer].decode(errors="ignore")
        left_out = len(names) - len(shown)
        note = f"{count(left_out, 'name')} left out: they may hold something private\n" if left_out else ""
        return self._texts(kept, len(text.encode()), note) or [TextContent(type="text", text="no files")]

    async def report(self, files: Files) -> Texts:
        """Where the time of a run went: steps, layers, operations, kernels and findings, as one JSON document."""
        return await self._run(["report", "--format", "json"], [files])

    async def layers(
        self, files: Files, columns: Columns = "", where: Conditions = (), sort: Columns = "", top: Top = 50
    ) -> Texts:
        """The layers of a run, slowest first, one JSON object per line. Times are ms per steady step."""
        return await self._run(_table("layers", columns, where, sort, top), [files])

    async def ops(
        self,
        files: Files,
        group_by: Annotated[str, Field(description="Sum by these columns, such as 'problem' or 'solver'.")] = "",
        columns: Columns = "",
        where: Conditions = (),
        sort: Columns = "",
        top: Top = 50,
    ) -> Texts:
        """The operations of a run (convolutions, GEMMs, ...): shapes, solvers, times; one JSON object per line."""
        more = [f"--group-by={group_by}"] if group_by else []
        return await self._run([*_table("ops", columns, where, sort, top), *more], [files])

    async def kernels(
        self,
        files: Files,
        by: Literal["name", "layer", "repetition", "bucket", ""] = "name",
        columns: Columns = "",
        where: Conditions = (),
        sort: Columns = "",
        top: Top = 50,
    ) -> Texts:
        """The kernels of a profile, summed by name, layer, repetition or size; by="": one row per kernel."""
        more = [f"--by={by}"] if by else []
        return await self._run([*_table("kernels", columns, where, sort, top), *more], [files])

    async def query(
        self,
        files: Files,
        sql: Annotated[str, Field(min_length=1, max_length=100_000, description="A SELECT, or a query's name.")],
        top: Top = 1000,
    ) -> Texts:
        """Ask a run in SQL: one SELECT over the table slice (id, track_id, ts, dur, category, name, args) and the views
        commands, kernels, layers, passes, operations; times in ns. A dataset of many runs: any SELECT over its tables.
        """
        return await self._run(["query", "--format", "jsonl", f"--top={top}"], [files], [sql])

    async def compare(self, before: Files, after: Files) -> Texts:
        """What became slower or faster between two runs, whether that is real, and why; one JSON object per part."""
        return await self._run(["compare", "--format", "jsonl"], [before, after])

    async def driver(self, files: Files) -> Texts:
        """MIOpenDriver lines that run the operations of a log again. They are text: the server runs none of them."""
        return await self._run(["driver"], [files])

    async def _run(self, words: Sequence[str], sides: Sequence[Sequence[str]], question: Sequence[str] = ()) -> Texts:
        """Run the command ``words`` on files. ``sides``: each is one argument; a single side is one argument
        per file."""
        try:
            paths = [[self._folders.resolve(path) for path in side] for side in sides]
        except InputError as error:
            raise ToolError(str(error)) from None
        where = self._folders.folder_of(paths[0][0])  # so that messages quote no folder of the machine
        given = [[os.path.join(".", os.path.relpath(path, where)) for path in side] for side in paths]
        if len(given) > 1:
            if any("," in path for side in given for path in side):
                raise ToolError("a path with a comma cannot be compared")
            given = [[",".join(side) for side in given]]
        async with self._at_once:
            answer = await call(
                [*words, "--", *given[0], *question],
                [path for side in paths for path in side],
                self._folders.real,
                where,
                self._limits,
            )
        if answer.code is None:
            raise ToolError(f"stopped: not done after {self._limits.seconds:g} s (--timeout of the server)")
        if answer.code:
            raise ToolError(answer.notes.strip().removeprefix("mio2trace: ") or f"failed with code {answer.code}")
        return self._texts(answer.text, answer.size, answer.notes)

    def _texts(self, text: str, size: int, notes: str = "") -> Texts:
        """Yield the answer, then the messages from stderr."""
        most = self._limits.answer
        if size > most:
            notes = f"cut off: the first {most:,} of {size:,} bytes; ask for less (top, where, columns)\n{notes}"
        return [TextContent(type="text", text=part) for part in (text, notes) if part.strip()]


def _table(command: str, columns: str, where: Sequence[str], sort: str, top: int) -> list[str]:
    words = [command, "--format", "jsonl", "--unit", "ms", f"--top={top}"]
    words += [f"--columns={columns}"] if columns else []
    words += [f"--sort={sort}"] if sort else []
    return [*words, *(f"--where={condition}" for condition in where)]
