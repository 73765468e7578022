"""The documentation site and the manual page: built offline, without a warning, with nothing that leads nowhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import click
import pytest

import mio2trace
from mio2trace.cli import cli
from tests.conftest import ROOT, missing

DOCS = ROOT / "docs"


class Page(HTMLParser):
    """What a page can be reached at, and what it leads to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in ("src", "href", "data", "srcset"):
                self.fetched.append(value or "")


class Site(NamedTuple):
    folder: Path
    pages: dict[Path, Page]

    def text(self, page: str) -> str:
        return (self.folder / page).read_text("utf-8")


def built(builder: str, folder: Path) -> Path:
    """What Sphinx makes of docs/, warnings as errors; without a network it would be the same."""
    if any(importlib.util.find_spec(name) is None for name in ("sphinx", "furo", "myst_parser", "sphinx_click")):
        missing("docs", "Sphinx is not here: pip install -e '.[docs]'")
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("_build", "commands", "project"))
    for path in ROOT.glob("*.md"):
        shutil.copy(path, folder)
    for name in ("benchmarks", "traces"):
        (folder / name).mkdir()
        shutil.copy(ROOT / name / "README.md", folder / name)
    (folder / "timeline").symlink_to(ROOT / "timeline")
    out = folder / builder
    nowhere = "http://127.0.0.1:9"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder, str(folder / "docs"), str(out)],
        env={**os.environ, "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return out


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = built("html", tmp_path_factory.mktemp("site"))
    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in folder.rglob("*.html")}
    return Site(folder.resolve(), pages)


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("man", tmp_path_factory.mktemp("man")) / "mio2trace.1"


def commands() -> dict[str, click.Command]:
    context = click.Context(cli, info_name="mio2trace")
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def test_every_page_is_on_the_site_and_each_command_has_one(site: Site) -> None:
    wanted = {f"{path.stem}.html" for path in DOCS.glob("*.md")}
    wanted |= {f"project/{name}.html" for name in ("changelog", "contributing", "security", "conduct", "benchmarks")}
    wanted |= {f"commands/{name}.html" for name in commands()}
    assert len(commands()) > 10
    assert {str(path.relative_to(site.folder)) for path in site.pages} >= wanted


def test_links_and_anchors_within_the_site_lead_somewhere(site: Site) -> None:
    """Pages, pictures, headings; of links to elsewhere only the form is looked at."""
    bad = []
    seen = 0
    for path, page in site.pages.items():
        for link in [*page.links, *page.fetched]:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            assert not parts.scheme, link
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            there = target.is_file()
            if there and parts.fragment and target in site.pages:
                there = unquote(parts.fragment) in site.pages[target].anchors
            seen += 1
            if not there:
                bad.append(f"{path.relative_to(site.folder)}: {link}")
    assert not bad
    assert seen > 1000


def test_no_page_fetches_from_elsewhere(site: Site) -> None:
    """No font, script, style or picture of another host: the site works from a disk."""
    fetched = {link for page in site.pages.values() for link in page.fetched}
    assert fetched
    assert not [link for link in fetched if urlsplit(link).netloc]


def test_help_stands_on_the_pages_as_it_is_printed(site: Site, manual: Path) -> None:
    """No character of it is taken for markup: stars, bars, backquotes, underscores at the end of words. The manual has
    every option, too."""
    roff = manual.read_text("utf-8").replace("\\-", "-").replace("\\", "")
    for name, command in commands().items():
        assert command.params, name
        page = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", site.text(f"commands/{name}.html"))))
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.help and not parameter.hidden:
                said = re.sub(r"\s+", " ", parameter.help)
                assert said in page, (name, said)
                assert all(word in roff for word in parameter.opts if word.startswith("--")), (name, parameter.opts)


def test_the_manual_page_has_what_manual_pages_have(manual: Path) -> None:
    """Name, synopsis, commands, exit status; groff, where it is, has nothing to say against it."""
    roff = manual.read_text("utf-8")
    sections = re.findall(r"^\.SH (.*)$", roff, re.M)
    assert {"NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT"} <= {section.strip('"').upper() for section in sections}
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("no groff")
    done = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww", "-k", str(manual)], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")
    plain = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    assert "mio2trace FILE... -o OUT" in plain
    assert all(name in plain for name in commands())


STABILITY = (DOCS / "stability.md").read_text("utf-8")


def listed(heading: str) -> dict[str, str]:
    """First and second cell of the rows below a heading."""
    part = STABILITY.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", part, re.MULTILINE))


def test_everything_public_is_listed_with_its_stability() -> None:
    assert set(listed("Commands")) == set(commands())
    assert set(listed("Python")) == set(mio2trace.__all__)
    assert set(listed("Commands").values()) | set(listed("Python").values()) == {"stable", "provisional"}


def test_pages_that_the_program_names_are_there(site: Site) -> None:
    """`docs/findings.md#idle` in help, reports and messages; `{{ ... }}` stands for a finding's id."""
    bad, seen = [], 0
    for path in sorted((ROOT / "timeline").rglob("*")):
        if path.suffix not in (".py", ".j2", ".sql"):
            continue
        for page, anchor in re.findall(r"\bdocs/([\w-]+)\.md(?:#([\w-]+))?", path.read_text("utf-8")):
            seen += 1
            found = site.pages.get(site.folder / f"{page}.html")
            if found is None or (anchor and anchor not in found.anchors):
                bad.append(f"{path.name}: docs/{page}.md#{anchor}")
    assert not bad
    assert seen > 20


def test_files_that_pages_name_are_there() -> None:
    """Paths of the repository in backquotes: modules, tests, benchmarks, folders."""
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)\(", tests, re.MULTILINE))
    bad, seen = [], 0
    for page in [
        *DOCS.glob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / name / "README.md" for name in ("benchmarks", "traces")),
    ]:
        if page.name == "CHANGELOG.md":
            continue  # it tells of what was there once
        text = page.read_text("utf-8")
        for path in re.findall(r"`((?:timeline|tests|benchmarks|docs|requirements|traces)/[\w./-]*)`", text):
            seen += 1
            if not (ROOT / path).exists():
                bad.append(f"{page.name}: {path}")
        for name in re.findall(r"`(test_\w+)`", text):
            seen += 1
            if name not in defined:
                bad.append(f"{page.name}: {name}")
    assert not bad
    assert seen > 50
