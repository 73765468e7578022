"""Program sources as evidence: the program that defines a kernel, and the macros at that place."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from mio2trace.model.profile import Program

_DEFINE = re.compile(r"#[ \t]*define[ \t]+(\w+)[ \t]+(\S[^\n]*)")


def plain_text(source: bytes) -> str:
    """Return a program's text, from any of the forms in a profile.

    The forms are a JSON object of strings (one per string given to clCreateProgramWithSource), the inside of a JSON
    string (line ends are the two characters ``\\n``), and plain text.
    """
    if source.lstrip()[:1] == b"{":
        try:
            parts = msgspec.json.decode(source, type=dict[str, str])
            return "".join(parts[key] for key in sorted(parts, key=lambda key: (len(key), key)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    elif b"\n" not in source and b"\\n" in source:
        try:
            return msgspec.json.decode(b'"' + source + b'"', type=str)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    text = source.decode("latin-1")
    if "\n" not in text or text.lstrip()[:1] == "{":
        text = text.replace("\\n", "\n").replace("\\t", "\t")  # a damaged string: only its lines are needed
    return text


class Sources:
    """The program sources of one profile; each text is prepared on first use."""

    def __init__(self, programs: tuple[Program, ...]) -> None:
        self.programs = programs
        self._texts: dict[int, str] = {}
        self._defining: dict[str, tuple[int, ...]] = {}
        self._places: dict[tuple[int, str], int | None] = {}
        self._defines: dict[tuple[int, str], Mapping[str, str]] = {}

    def text(self, index: int) -> str:
        """Return the text of program ``index``; ``""`` if it was made from a binary."""
        text = self._texts.get(index)
        if text is None:
            text = self._texts[index] = plain_text(self.programs[index].source)
        return text

    def defining(self, kernel: str) -> tuple[int, ...]:
        """Return the indices of the programs whose source defines ``kernel``, in the order in which they were made."""
        found = self._defining.get(kernel)
        if found is None:
            word = kernel.encode()
            found = self._defining[kernel] = tuple(
                index
                for index, program in enumerate(self.programs)
                if word in program.source and self._definition(index, kernel) is not None
            )
        return found

    def defines(self, index: int, kernel: str) -> Mapping[str, str]:
        """Return macro values by name at the definition of ``kernel``: the last ``#define`` of each before it.

        Empty if the program does not define the kernel.
        """
        key = index, kernel
        macros = self._defines.get(key)
        if macros is None:
            at = self._definition(index, kernel)
            found = [] if at is None else _DEFINE.findall(self.text(index), 0, at)
            macros = self._defines[key] = {name: value.rstrip() for name, value in found}
        return macros

    def program_of(self, program: int | None, kernel: str) -> int | None:
        """Return the program that made a kernel: the linked one, else the only one whose source defines that name."""
        if program is not None:
            return program if program < len(self.programs) else None
        found = self.defining(kernel)
        # A program without a source may also define the name.
        unseen = any(not program.source for program in self.programs)
        return found[0] if len(found) == 1 and not unseen else None

    def _definition(self, index: int, kernel: str) -> int | None:
        key = index, kernel
        if key not in self._places:
            match = re.search(rf"\bvoid\s+{re.escape(kernel)}\s*\(", self.text(index))
            self._places[key] = match.start() if match else None
        return self._places[key]


def whole(macros: Mapping[str, str], name: str) -> int | None:
    """Return a macro's value if it is a plain positive integer of limited length."""
    value = macros.get(name, "")
    return int(value) or None if value.isascii() and value.isdigit() and len(value) < 19 else None
