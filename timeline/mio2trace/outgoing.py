"""Text of outputs: text from a file, or a file's name, must not control or break the place where it is shown.

Each place has one rule (docs/hostile-input.md): a line of a terminal, a cell of CSV, a cell of Markdown, a line of
JSON.
"""

from __future__ import annotations

import re

from mio2trace.patterns import late

_FORMULA = "=+-@＝＋－＠"
"""The first characters of formulas in spreadsheets, also as wide characters."""
_DIGITS = "0123456789"
_NUMBER = late(r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,4})?")
_MARKUP = late(r"[\\`*\[\]<>|~&$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|(?<=:)//|(?<=[wW]{3})\.")
_MENTION = late(r"[@#](?=\w)|\b(?i:GH)-(?=[0-9])")
"""Texts from which GitHub makes links and notifications even if they are escaped."""
_NOT_JSON = late(r"[^\x20-\x7e]")


def visible(text: str) -> str:
    """Return the text on one line, with control and hidden characters written out: ``\\x1b``, ``\\n``, ``\\u202e``."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shortened(text: str, length: int) -> str:
    """Return at most ``length`` characters of a text. No number is cut: a part of it reads as another number."""
    if len(text) <= length:
        return text
    return f"{text[: number_at(text, length - 3)[0]]}..."


def without_middle(text: str, length: int) -> str:
    """Return at most ``length`` characters of a name: its beginning and its end, which distinguish names better than
    the middle. No number is cut."""
    if len(text) <= length:
        return text
    end = (length - 3) // 2
    return f"{text[: number_at(text, length - 3 - end)[0]]}...{text[number_at(text, len(text) - end)[1] :]}"


LONG_NUMBER = 10
"""A number with more digits is a time or an id: nobody takes its part for a size."""


def number_at(text: str, at: int) -> tuple[int, int]:
    """Return begin and end of the number that a cut at a place would divide; twice this place if it divides none."""
    if not text[max(at - 1, 0) : at + 1].isdecimal() or not 0 < at < len(text):
        return at, at
    begin, end = len(text[:at].rstrip(_DIGITS)), len(text) - len(text[at:].lstrip(_DIGITS))
    return (begin, end) if begin and end - begin <= LONG_NUMBER else (at, at)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 kernel``, ``2,351 kernels``, ``3 searches``, ``4 copies``."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith(('ch', 's', 'sh', 'x')) else 's'}"


def csv_text(text: str) -> str:
    """Return `visible` text, with an apostrophe before a text that a spreadsheet would read as a formula. Numbers stay
    numbers."""
    if text[:1].isalnum() and text.isprintable():  # true of nearly all texts
        return text
    first = text.lstrip()[:1]
    if (first and first in _FORMULA and not _NUMBER.fullmatch(text)) or text[:1] in ("\t", "\r", "\n"):
        text = "'" + text
    return visible(text)


def markdown_text(text: str) -> str:
    """Return `visible` text, with escapes for markup, HTML, links and mentions."""
    return _MENTION.sub(r"\g<0><!-- -->", _MARKUP.sub(_escaped, visible(text)))


def _escaped(found: re.Match[str]) -> str:
    """Return HTML's special characters as entities, all others after a backslash."""
    text = found[0]
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;", "//": "\\//"}.get(text, "\\" + text)


def json_text(text: str) -> str:
    """Escape JSON text, one line or indented: the characters that `visible` writes out become escapes of JSON."""
    if text.isascii() and "\x7f" not in text:  # a library escapes all others
        return text
    return _NOT_JSON.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    char = found[0]
    if char.isprintable() or char == "\n":  # the library escapes a line end inside a text
        return char
    return "\\u" + char.encode("utf-16-be", "surrogatepass").hex("-", 2).replace("-", "\\u")
