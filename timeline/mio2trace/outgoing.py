"""Text as it leaves the program: what comes from a file or a file's name neither steers nor breaks where it is shown.

One rule for each place (docs/hostile-input.md): a terminal's line, a cell of CSV, a cell of Markdown, a line of JSON.
"""

from __future__ import annotations

import re

from mio2trace.patterns import late

_FORMULA = "=+-@＝＋－＠"
"""First characters of a formula in spreadsheets, wide characters included."""
_NUMBER = late(r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,4})?")
_MARKUP = late(r"[\\`*\[\]<>|~&$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|(?<=:)//|(?<=[wW]{3})\.")
_MENTION = late(r"[@#](?=\w)|\b(?i:GH)-(?=[0-9])")
"""Texts from which GitHub makes links and notifications in shown text: an escape does not prevent it."""
_NOT_JSON = late(r"[^\x20-\x7e]")


def visible(text: str) -> str:
    """On one line, with what steers a terminal or hides in it written out: ``\\x1b``, ``\\n``, ``\\u202e``."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shortened(text: str, length: int) -> str:
    """Return at most ``most`` characters of a text."""
    return text if len(text) <= length else text[: length - 3] + "..."


def without_middle(text: str, length: int) -> str:
    """Return at most ``length`` characters of a name: its beginning and its end, which says more than its middle."""
    if len(text) <= length:
        return text
    end = (length - 3) // 2
    return f"{text[: length - 3 - end]}...{text[len(text) - end :]}"


def csv_text(text: str) -> str:
    """As `visible`, with an apostrophe before what a spreadsheet would take for a formula; numbers stay numbers."""
    if text[:1].isalnum() and text.isprintable():  # nearly all
        return text
    first = text.lstrip()[:1]
    if (first and first in _FORMULA and not _NUMBER.fullmatch(text)) or text[:1] in ("\t", "\r", "\n"):
        text = "'" + text
    return visible(text)


def markdown_text(text: str) -> str:
    """As `visible`, with what would be markup, HTML, a link or a mention taken as it stands."""
    return _MENTION.sub(r"\g<0><!-- -->", _MARKUP.sub(_escaped, visible(text)))


def _escaped(found: re.Match[str]) -> str:
    """HTML's own characters as entities, the rest behind a backslash."""
    text = found[0]
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;", "//": "\\//"}.get(text, "\\" + text)


def json_text(text: str) -> str:
    """The same JSON, a line or indented. What `visible` writes out becomes JSON's own escapes."""
    if text.isascii() and "\x7f" not in text:  # a library escapes the others
        return text
    return _NOT_JSON.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    char = found[0]
    if char.isprintable() or char == "\n":  # a line end inside a text is escaped by the library
        return char
    return "\\u" + char.encode("utf-16-be", "surrogatepass").hex("-", 2).replace("-", "\\u")
