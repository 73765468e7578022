"""The tools of the server. Each runs a command of the program and returns what the command prints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Literal

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import TextContent, ToolAnnotations
from pydantic import Field

import mio2trace
from mio2trace.forked import processors
from mio2trace.notes import InputError
from mio2trace.outgoing import count
from mio2trace.privacy import Cleaner
from mio2trace.queries import shipped
from mio2trace.serving.calls import Folders, Limits, call

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
    """What a client can call. The first line of a docstring is what the client reads."""

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
