"""The documentation site and the manual page, of the Markdown that stands here and of the program itself.

    python -m sphinx -W -b html docs build/html
    python -m sphinx -W -b man docs build/man

Nothing is fetched. Pages of the repository's root (changelog, contributing, ...) and one page a command are made when
a build begins, in `docs/project` and `docs/commands`; links that lead out of docs/ lead to these.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "timeline"))

if TYPE_CHECKING:
    import click
    from sphinx.application import Sphinx

import mio2trace  # noqa: E402 - the one of this tree

project = "mio2trace"
author = "the authors of mio2trace"
copyright = f"{author}, Apache-2.0"
version = release = mio2trace.__version__

extensions = ["myst_parser", "sphinx_click"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["images", "_build", "Thumbs.db"]
nitpicky = True
# Indented blocks are commands, outputs and drawings, none of them of a language that a lexer knows.
highlight_language = "none"
smartquotes = False  # quotes and -- are part of commands
myst_heading_anchors = 3
myst_links_external_new_tab = False
myst_enable_extensions = ["deflist", "colon_fence"]

html_theme = "furo"
html_title = f"mio2trace {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
templates_path: list[str] = []
pygments_style = "friendly"
pygments_dark_style = "github-dark"

man_pages = [("man", "mio2trace", "which layer, operation and kernel the GPU time went into", [author], 1)]
man_show_urls = True

OUTSIDE = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "traces/README.md": "project/samples.md",
    "README.md": "index.md",
}
"""Files outside of docs/, with the page of the site that shows each of them."""
_LINK = re.compile(r"(?<!!)(\[[^\]\n]*(?:\n[^\]\n]*)?\])\(((?!https?:|mailto:|#)[^)\s]+)\)")
_MADE = "made by docs/conf.py"
_written: set[Path] = set()


def relinked(text: str, source: Path, page: Path) -> str:
    """``text`` of the file ``source`` as it stands on ``page`` (both from the root): relative links lead to pages.

    A link to something that is no page of the site (a folder of the repository, a program's source) stays as text.
    """

    def turned(match: re.Match[str]) -> str:
        label, target = match[1], match[2]
        path, hash_sign, anchor = target.partition("#")
        if label[1:-1] == path and not anchor:
            label = "[]"  # the page's title in place of its file's name
        file = os.path.normpath(source.parent / path)
        on_site = OUTSIDE.get(file.rstrip("/")) or OUTSIDE.get(f"{file.rstrip('/')}/README.md")
        if on_site is not None:
            file = f"docs/{on_site}"
        elif not file.startswith("docs/"):
            return match[1][1:-1]
        return f"{label}({os.path.relpath(file, page.parent)}{hash_sign}{anchor})"

    return _LINK.sub(turned, text)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Each command by its name, loaded: until it is asked for, the program's list holds one line of it."""
    import click

    from mio2trace.cli import cli

    context = click.Context(cli, info_name="mio2trace")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None, name
        yield name, command


def _write(path: Path, text: str) -> None:
    """Only where it differs: an unchanged page is not read again."""
    _written.add(path)
    if not path.is_file() or path.read_text("utf-8") != text:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")


def make_pages(app: Sphinx, _config: object) -> None:
    """The pages that are not written by hand, in the folder of sources of this build."""
    folder = Path(app.srcdir)
    for file, page in OUTSIDE.items():
        if page != "index.md":
            text = (ROOT / file).read_text("utf-8")
            _write(folder / page, f"<!-- {_MADE} -->\n\n{relinked(text, Path(file), Path('docs') / page)}")
    rows, names = [], []
    for name, command in commands():
        assert command.callback is not None, name
        place = f"{command.callback.__module__}:{name}"
        lines = [f".. {_MADE}", "", f".. click:: {place}", f"   :prog: mio2trace {name}", "   :nested: full", ""]
        _write(folder / "commands" / f"{name}.rst", "\n".join(lines))
        rows.append(f"| [`mio2trace {name}`]({name}.rst) | {command.get_short_help_str(200)} |")
        names.append(name)
    index = [f"<!-- {_MADE} -->", "", "# Commands", "", "`mio2trace FILE...` is short for `mio2trace convert FILE...`."]
    index += ["Each says of itself with `--help` what its page says.", "", "| command | |", "| --- | --- |", *rows, ""]
    index += ["```{toctree}", ":hidden:", "", *names, "```", ""]
    _write(folder / "commands" / "index.md", "\n".join(index))
    for old in {*folder.glob("commands/*"), *folder.glob("project/*")} - _written:
        old.unlink()


def plain_description(_app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """A command's help as it is: paragraphs of plain text, and what help leaves unwrapped in a block of its own."""
    lines[:] = []
    for paragraph in inspect.cleandoc(context.command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            head, *rest = paragraph[2:].split("\n")
            lines += [f"{_escaped(head)}:" if head.endswith(":") else f"{_escaped(head)} ::", ""]
            lines += [f"   {line.removeprefix('  ')}" for line in rest]
        else:
            lines += [_escaped(line) for line in paragraph.split("\n")]
        lines.append("")


def plain_options(_app: Sphinx, _context: click.Context, lines: list[str]) -> None:
    """What options say of themselves is plain text."""
    for number, line in enumerate(lines):
        if extra := _EXTRA.match(line):
            values = re.split(r"[|,] *", re.sub("[`']", "", extra[2]))
            words = ", ".join(f"``{value.strip()}``" for value in values)
            lines[number] = f"    {'Default' if extra[1] == 'default' else 'One of'}: {words}."
        elif not line.startswith(".. option::"):
            lines[number] = _escaped(line.replace("**Required** ", "Required. "))


def no_arguments(_app: Sphinx, _context: click.Context, lines: list[str]) -> None:
    """The usage names them, the help says what they are."""
    lines.clear()


_EXTRA = re.compile(r"\s+:(default|options): (.*)")


def _escaped(text: str) -> str:
    """Nothing in it is reStructuredText's markup."""
    return re.sub(r"([\\*`|_<>\[\]])", r"\\\1", text)


def relink_page(app: Sphinx, docname: str, content: list[str]) -> None:
    """Links of docs/*.md that lead out of docs/."""
    if "/" not in docname:
        content[0] = relinked(content[0], Path("docs") / docname, Path("docs") / docname)


def leave_out_what_is_not_built(app: Sphinx) -> None:
    """The source of the manual page is no page of the site, and the manual has no other."""
    if app.builder.name == "man":
        app.config.root_doc = "man"
        app.config.include_patterns[:] = ["man.rst"]
    else:
        app.config.exclude_patterns.append("man.rst")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", make_pages)
    app.connect("builder-inited", leave_out_what_is_not_built)
    app.connect("source-read", relink_page)
    app.connect("sphinx-click-process-description", plain_description)
    app.connect("sphinx-click-process-options", plain_options)
    app.connect("sphinx-click-process-arguments", no_arguments)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
