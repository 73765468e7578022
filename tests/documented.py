"""What README and docs show: commands with their output, and Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"^(`{3,}|~{3,}|:{3,})(.*)\n((?:.*\n)*?)\1\s*$", re.M)
_COMMAND = re.compile(r"(\$ )?(mio2trace (?!\S*\.\.\.).*)")
_LANGUAGES = {"", "console", "sh", "shell", "bash", "text"}


class Shown(NamedTuple):
    """A command of ours and what stands below it in its block: what it prints, or nothing is shown of that."""

    command: str
    output: str


class Code(NamedTuple):
    """A piece of Python, and the line of its page that it begins at."""

    line: int
    text: str


def indented(text: str) -> Iterator[tuple[int, str]]:
    """Blocks of four blanks, without them, outside of fences and lists; each with its line."""
    lines = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text).split("\n")
    number, prose = 0, ""
    while number < len(lines):
        if not lines[number].startswith("    "):
            prose = lines[number] if lines[number].strip() else prose
            number += 1
            continue
        end = number
        while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
            end += 1
        if (number == 0 or not lines[number - 1].strip()) and not re.match(r"\s*(?:[*+-]|\d+[.)]) ", prose):
            yield number + 1, "\n".join(line[4:].rstrip() for line in lines[number:end]).rstrip("\n") + "\n"
        number = end


def _fenced(text: str, languages: set[str]) -> Iterator[tuple[int, str]]:
    for match in _FENCE.finditer(text):
        if match[2].strip() in languages:
            yield text.count("\n", 0, match.start()) + 2, match[3]


def _open_quote(command: str) -> bool:
    command = re.sub(r"\s# .*", "", command)
    return any(len(re.findall(rf"(?<!\\){quote}", command)) % 2 for quote in "'\"")


def commands(text: str) -> Iterator[Shown]:
    """Those of blocks, indented or fenced. A command goes on while a quote is open or a line ends in a backslash.

    The lines behind a command, up to the next one or to the end of the block, are its output.
    """
    for _, block in [*indented(text), *_fenced(text, _LANGUAGES)]:
        command, output = "", list[str]()
        for line in block.splitlines():
            begins = _COMMAND.fullmatch(line)
            if command and (_open_quote(command) or command.endswith("\\")):
                command += f"\n{line}"
            elif begins:
                if command:
                    yield Shown(command, "\n".join(output).strip("\n"))
                command, output = begins[2], []
            elif command:
                output.append(line)
        if command:
            yield Shown(command, "\n".join(output).strip("\n"))


def python(text: str) -> Iterator[Code]:
    """Fences of the language, and indented blocks that import us."""
    for line, block in _fenced(text, {"python", "py"}):
        yield Code(line, block)
    for line, block in indented(text):
        if re.search(r"^(?:import|from) mio2trace\b", block, re.MULTILINE):
            yield Code(line, block)


def fits(shown: str, printed: str) -> bool:
    """Whether ``shown`` is what was printed: `...` alone on a line stands for any lines, else for any text in one."""
    lines = []
    for line in shown.splitlines():
        if line.strip() == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*?".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ ]*\n")
    return re.fullmatch("".join(lines), printed.rstrip("\n") + "\n") is not None
