"""Replacement names for private values of which only equality matters: addresses, machines."""

from __future__ import annotations

import re

from mio2trace.privacy.cleaner import Cleaner
from mio2trace.privacy.rules import Rule, Rules

FIRST_ADDRESS = 1 << 16
"""Smaller values are numbers: offsets, sizes."""
_BASE, _STEP = 0x1000_0000, 0x100
"""New addresses of eight digits fit into handles of 32 bits."""
_HEX = re.compile(r"(0[xX])?([0-9A-Fa-f]+)")
_NOT_HEX = re.compile(r"[^0-9A-Fa-f]+")


class Pseudonyms:
    """Give equal values equal names, in the order of first use, across all files that share this object."""

    def __init__(self) -> None:
        self._addresses: dict[int, int] = {}
        self._words: dict[str, dict[str, str]] = {}

    def address(self, value: int) -> int:
        if value < FIRST_ADDRESS:
            return value
        return self._addresses.setdefault(value, _BASE + _STEP * len(self._addresses))

    def knows(self, value: int) -> bool:
        """Return whether the value was used as an address."""
        return value in self._addresses

    def digits(self, text: str) -> str:
        """Replace hexadecimal digits, with or without ``0x``; a padded number keeps its length."""
        match = _HEX.fullmatch(text)
        if match is None:
            return text
        made = format(self.address(int(match[2], 16)), "X" if match[2].isupper() else "x")
        return (match[1] or "") + (made.zfill(len(match[2])) if match[2].startswith("0") or not match[1] else made)

    def handle(self, text: str) -> str:
        """Replace the handle of an object, in any form."""
        return self.digits(text) if _HEX.fullmatch(text) else self.word("handle", text)

    def argument(self, text: str) -> str:
        """Replace a kernel's argument (hexadecimal, memory order); a value that cannot be an address stays."""
        if len(text) not in (8, 16) or not _HEX.fullmatch(text) or text[:2].lower() == "0x":
            return text
        value = int.from_bytes(bytes.fromhex(text), "little")
        if not (self.knows(value) or (len(text) == 16 and 1 << 32 <= value < 1 << 56)):
            return text
        return self.address(value).to_bytes(len(text) // 2, "little").hex()

    def word(self, what: str, text: str) -> str:
        """Return ``machine 2``; an empty text stays empty."""
        of = self._words.setdefault(what, {})
        return of.setdefault(text, f"{what} {len(of) + 1}") if text else ""


class Scrubber(Cleaner):
    """A cleaner for text that is read again: addresses are replaced by others, so that equal addresses stay equal."""

    def __init__(self, pseudonyms: Pseudonyms) -> None:
        super().__init__()
        self.pseudonyms = pseudonyms

        self._rules = {sort: Rules(map(self._renaming, of.rules)) for sort, of in self._rules.items()}

    def _renaming(self, rule: Rule) -> Rule:
        """Return the rule with a new address in place of each address that it removes."""
        decide = rule.becomes
        if rule.kinds != {"pointers"} or isinstance(decide, str):
            return rule

        def becomes(match: re.Match[str]) -> str:
            if decide(match) == match[0]:
                return match[0]
            begin = "0x" if match[0][:2].lower() == "0x" else ""
            return begin + self.pseudonyms.digits(_NOT_HEX.sub("", match[0][len(begin) :]))

        return rule._replace(becomes=becomes)
