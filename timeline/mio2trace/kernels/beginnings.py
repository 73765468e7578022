"""How the names begin that a regular expression fits: all that is literal up to where anything may follow."""

from __future__ import annotations

import re
from itertools import product

_GROUP, _AHEAD, _QUANTIFIER = "(?:", "(?!", re.compile(r"[*+?]|\{[\d,]+\}")
_PLAIN = re.compile(r"\w")


def beginnings(pattern: str) -> tuple[str, ...]:
    """Each of them, the empty text where it fits names that begin with anything.

    Groups ``(?:a|b)``, classes ``[ab]`` and ``?`` are choices; after what else is no literal (``\\w*``, ``$``) anything
    may follow.
    """
    return tuple(dict.fromkeys(text for alternative in _split(pattern) for text in _expand(alternative)))


def _split(pattern: str) -> list[str]:
    """The alternatives of a pattern."""
    depth, first, alternatives = 0, 0, []
    for at, character in enumerate(f"{pattern}|"):
        if pattern[at - 1 : at] == "\\":
            continue
        depth += (character in "([") - (character in ")]")
        if character == "|" and not depth:
            alternatives.append(pattern[first:at])
            first = at + 1
    return alternatives


def _expand(alternative: str) -> list[str]:
    """Of one alternative: the literal texts up to the first piece that is none."""
    texts, at = [""], 0
    while at < len(alternative):
        piece, end = _piece(alternative, at)
        quantifier = _QUANTIFIER.match(alternative, end)
        if piece is None or (quantifier and quantifier[0] != "?"):
            break
        choices = [*piece, ""] if quantifier else piece
        texts = [head + tail for head, tail in product(texts, choices)]
        at = quantifier.end() if quantifier else end
    return texts


def _piece(alternative: str, at: int) -> tuple[list[str] | None, int]:
    """What stands at a place, each of its choices, None where these are many; and where it ends."""
    character = alternative[at]
    if character == "\\":
        return (None if _PLAIN.match(alternative, at + 1) else [alternative[at + 1]]), at + 2
    if character == "[":
        end = alternative.index("]", at)
        inside = alternative[at + 1 : end]
        return (None if {*inside} & {*"^\\-"} else [*inside]), end + 1
    if character == "(":
        end = _closing(alternative, at)
        if alternative.startswith(_AHEAD, at):
            return [""], end + 1
        inside = alternative[at + len(_GROUP) : end]
        whole = all(_PLAIN.match(one) or one in "|(?:)[]" for one in inside)
        return (list(beginnings(inside)) if whole else None), end + 1
    return ([character] if _PLAIN.match(character) else None), at + 1


def _closing(text: str, at: int) -> int:
    """Where the group that opens at a place closes."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if not depth:
            return end
    return len(text)
