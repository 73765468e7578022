"""``mio2trace mcp``, asked by the SDK's own client over standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mio2trace.notes import InputError
from tests.canaries import CANARIES, leaks
from tests.commands import invoked, printed, stderr_of
from tests.conftest import ROOT
from tests.often import present, saved
from tests.planted import FORMATS

if TYPE_CHECKING:  # a second for each process that collects tests
    from mcp import Client
    from mcp.types import CallToolResult

RUN = ["rocpd/run.log.gz", "rocpd/results.db.gz"]
TOOLS = {"files", "report", "layers", "ops", "kernels", "query", "compare", "driver"}
ENDLESS = "with recursive n(x) as (select 1 union all select x + 1 from n) select count(*) from n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs, links, and beside the folder a run that nobody may read."""
    top = tmp_path_factory.mktemp("served")
    inside, outside = top / "runs", top / "outside"
    shutil.copytree(ROOT / "traces" / "lenet-rocpd", inside / "rocpd")
    shutil.copytree(ROOT / "traces" / "alexnet-b1-miopen29", inside / "opencl")
    shutil.copytree(ROOT / "traces" / "alexnet-b1-train", outside)
    (inside / "out.log").symlink_to(outside / "run.log")
    (inside / "out").symlink_to(outside)
    (inside / "in").symlink_to(inside / "rocpd")
    mixed = inside / "mixed"
    mixed.mkdir()
    (mixed / "run.log").symlink_to(outside / "run.log")
    shutil.copy(outside / "prof.json.gz", mixed)
    return inside


Ask = Callable[["Client"], Coroutine[Any, Any, None]]


def served(*asks: Ask, on: Sequence[str | Path]) -> None:
    """Start the server with these arguments and let each of ``asks`` talk to it."""
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mio2trace", "mcp", *map(str, on)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "timeline")},
    )

    async def talk() -> None:
        async with Client(stdio_client(parameters)) as client:
            for ask in asks:
                await ask(client)

    # a thread of its own: a browser of another test may keep a loop in this one
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(talk())).result()


def said(result: CallToolResult) -> list[str]:
    from mcp.types import TextContent

    return [part.text for part in result.content if isinstance(part, TextContent)]


def texts(result: CallToolResult) -> list[str]:
    assert not result.is_error, result.content
    return said(result)


def rows(result: CallToolResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in texts(result)[0].splitlines()]


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    return "".join(said(result))


def printed_in(folder: Path, *words: str) -> str:
    """What the command itself prints."""
    with contextlib.chdir(folder):
        return printed(*words)


@pytest.mark.thorough
def test_each_tool_answers_what_its_command_prints_and_nothing_else(folder: Path) -> None:
    """What is outside of the folder, writes, or never ends is refused."""
    outside = folder.parent / "outside"

    async def answers(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == TOOLS
        for tool in listed:
            assert tool.description
            assert present(tool.annotations).read_only_hint
        (names,) = texts(await client.call_tool("files"))
        assert {*RUN, "rocpd/", "in/"} <= set(names.splitlines())
        assert "out" not in names

        (report, *_) = texts(await client.call_tool("report", {"files": RUN}))
        assert json.loads(report) == json.loads(printed_in(folder, "report", "--format", "json", *RUN))
        for tool_name, words in {
            "layers": ["layers", "--format", "jsonl", "--unit", "ms"],
            "ops": ["ops", "--format", "jsonl", "--unit", "ms"],
            "kernels": ["kernels", "--by", "name", "--format", "jsonl", "--unit", "ms"],
            "driver": ["driver"],
        }.items():
            (text, *_) = texts(await client.call_tool(tool_name, {"files": RUN}))
            assert text == printed_in(folder, *words, *RUN), tool_name
        assert len(rows(await client.call_tool("kernels", {"files": RUN, "top": 3, "sort": "calls"}))) == 3
        assert rows(await client.call_tool("layers", {"files": RUN, "where": ["layer=conv2"], "columns": "layer"}))

        sql = "select count(*) as n, sum(dur) as ns from kernels"
        assert rows(await client.call_tool("query", {"files": RUN, "sql": sql}))[0]["n"] == 59
        named = rows(await client.call_tool("query", {"files": ["in"], "sql": "slowest kernels"}))
        assert named[0]["kernel"] == "MIOpenConvUni"

        compared = await client.call_tool("compare", {"before": RUN, "after": ["opencl"]})
        assert rows(compared)
        assert texts(compared)[0] == printed_in(folder, "compare", "--format", "jsonl", ",".join(RUN), "opencl")

    async def refuses(client: Client) -> None:
        for path in (
            "../outside",
            str(outside),
            str(outside / "run.log"),
            "rocpd/../../outside",
            "/etc/passwd",
            "",
            "-",
        ):
            assert "server" in await refused(client, "report", files=[path]) or path == "" or ".." in path
        assert "leads out" in await refused(client, "report", files=["out.log"])
        assert "leads out" in await refused(client, "query", files=["out/run.log"], sql="slowest layers")
        assert "leads out" in await refused(client, "compare", before=["rocpd"], after=["out"])
        assert "comma" in await refused(client, "compare", before=["rocpd"], after=[comma(folder)])
        # of a folder all is read that is its own
        alone = "".join(said(await client.call_tool("layers", {"files": ["mixed"]})))
        assert "conv1 forward" not in alone
        assert "link that leads out of the folder: skipped" in alone

        for sql in (
            "insert into slice (name) values ('x')",
            "with x as (select 1) insert into slice (name) select 'x' from x",
            "create table more as select 1",
            "pragma temp_store_directory = '/'",
            f"attach '{outside / 'made.db'}' as other",
        ):
            assert await refused(client, "query", files=RUN, sql=sql)
        assert sorted(path.name for path in outside.iterdir()) == sorted(
            path.name for path in (ROOT / "traces" / "alexnet-b1-train").iterdir()
        )

    served(answers, refuses, on=[folder])


def test_an_endless_query_is_stopped_and_the_server_lives_on(folder: Path) -> None:
    async def ask(client: Client) -> None:
        begun = time.monotonic()
        assert "stopped: not done after 1 s" in await refused(client, "query", files=RUN, sql=ENDLESS)
        assert time.monotonic() - begun < 30
        assert texts(await client.call_tool("files"))

    served(ask, on=[folder, "--timeout", "1"])


def comma(folder: Path) -> str:
    return saved(folder / "a,b.log", "").name


@pytest.mark.thorough
def test_an_answer_is_cut_and_says_so_and_memory_has_an_end(folder: Path) -> None:
    async def ask(client: Client) -> None:
        sql = "with recursive n(x) as (select 1 union all select x + 1 from n limit 9999) select x from n"
        result = await client.call_tool("query", {"files": RUN, "sql": sql, "top": 9999})
        answer, notes = texts(result)
        assert len(answer.encode()) <= 5000
        assert [row["x"] for row in rows(result)] == list(range(1, answer.count("\n") + 1))
        assert notes.startswith("cut off: the first 5,000 of ")
        rows_without_end = ENDLESS.replace("count(*)", "x, hex(zeroblob(100000))")
        assert "memory" in await refused(client, "query", files=RUN, sql=rows_without_end)

    served(ask, on=[folder, "--max-answer", "5KB", "--memory-limit", "500MB"])


def test_nothing_private_is_in_an_answer(tmp_path: Path) -> None:
    """Some formats with a canary in all of their fields, and a file that is named for one."""
    formats = list(FORMATS.values())[::24]
    kinds = ("a home folder", "user and host", "a host", "a mail address", "an address of a host")
    for number, make in enumerate(formats):
        for place, data in enumerate(make(CANARIES[kinds[number % len(kinds)]])):
            file = tmp_path / f"{number}" / f"in{place}"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data)
    (tmp_path / "someone@canaryhost.log").write_text("")

    async def ask(client: Client) -> None:
        answers = [await client.call_tool("files")]
        for number in range(len(formats)):
            files = {"files": [f"{number}/{path.name}" for path in sorted((tmp_path / f"{number}").iterdir())]}
            for tool in ("report", "kernels"):
                answers.append(await client.call_tool(tool, files))
        told = ["".join(said(answer)) for answer in answers]
        assert "1 name left out" in told[0]
        assert sum(not answer.is_error for answer in answers) >= len(formats)
        for text in told:
            assert not leaks(text)
            assert str(tmp_path) not in text

    served(ask, on=[tmp_path])


@pytest.mark.thorough
def test_a_dataset_is_asked_and_one_with_a_link_that_leads_out_is_not(folder: Path, tmp_path: Path) -> None:
    printed_in(tmp_path, "batch", str(folder / "rocpd"), "-o", "ds", "-q")
    (tmp_path / "bad").mkdir()
    shutil.copytree(tmp_path / "ds", tmp_path / "bad" / "ds")
    table = next((tmp_path / "bad" / "ds" / "kernels").glob("*.parquet"))
    moved = tmp_path / "elsewhere" / table.name
    moved.parent.mkdir()
    shutil.move(table, moved)
    table.symlink_to(moved)
    run = next((tmp_path / "ds" / "runs").glob("*.parquet")).name

    async def ask(client: Client) -> None:
        sql = "select count(*) as n from kernels"
        assert rows(await client.call_tool("query", {"files": ["ds"], "sql": sql}))[0]["n"] == 59
        assert await refused(client, "query", files=["ds"], sql="copy (select 1) to 'made'")
        secret = f"select * from read_text('{moved.parent}/*')"
        assert await refused(client, "query", files=["ds"], sql=secret)
        assert "leads outside" in await refused(client, "query", files=["bad/ds"], sql=sql)

    (tmp_path / "served").mkdir()
    shutil.move(tmp_path / "ds", tmp_path / "served" / "ds")
    shutil.move(tmp_path / "bad", tmp_path / "served" / "bad")
    served(ask, on=[tmp_path / "served"])

    async def below(client: Client) -> None:
        assert "begins outside" in await refused(client, "query", files=[run], sql="slowest problems")

    served(below, on=[tmp_path / "served" / "ds" / "runs"])


def test_paths_are_resolved_in_the_folders_alone(tmp_path: Path) -> None:
    from mio2trace.serving import Folders  # it loads the SDK

    for name in ("a/one.log", "b/two.log", "a/both.log", "b/both.log", "ab/three.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    folders = Folders([str(tmp_path / "a"), str(tmp_path / "link")])
    assert folders.resolve("one.log") == str(tmp_path / "a" / "one.log")
    assert folders.resolve("two.log") == str(tmp_path / "b" / "two.log")
    assert folders.resolve(str(tmp_path / "link" / "two.log")) == str(tmp_path / "b" / "two.log")
    assert folders.folder_of(folders.resolve("two.log")) == str(tmp_path / "b")
    for bad in ("both.log", "three.log", str(tmp_path / "ab" / "three.log"), "a\0b", "..", str(tmp_path)):
        with pytest.raises(InputError):
            folders.resolve(bad)
    assert list(folders.listing()) == ["both.log", "one.log", "both.log", "two.log"]


def test_without_the_sdk_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.delitem(sys.modules, "mio2trace.serving", raising=False)
    done = invoked("mcp", tmp_path)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "pip install 'mio2trace[mcp]'" in done.stderr


def test_what_is_no_folder_is_refused() -> None:
    assert "nowhere: is not a folder" in stderr_of(invoked("mcp", "nowhere"), 2)


def test_help_loads_no_sdk() -> None:
    code = "import sys; from mio2trace.cli import cli; cli(['mcp', '-h'], standalone_mode=False)"
    code += "; print('loaded:', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "timeline")},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stdout.partition("loaded:")[2].split()
    assert "mio2trace.commands.serve" in loaded
    assert not {"anyio", "mcp", "pydantic"} & set(loaded)
