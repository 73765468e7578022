"""Facts about a kernel, and what they are read from: arguments, program sources.

It is also the interface between `find_gemms` and the libraries: a library is a row of kernel names and a function.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from mio2trace.model.choices import Gemm
from mio2trace.model.profile import Activity, Profile, Program, Size3
from mio2trace.model.tables import distinct
from mio2trace.patterns import late

# -- Program sources: the program that defines a kernel, and the macros at that place ----------------------------------

_DEFINE = late(r"#[ \t]*define[ \t]+(\w+)[ \t]+(\S[^\n]*)")


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


Triple = tuple[int, int, int]


# -- Facts -------------------------------------------------------------------------------------------------------------


class KernelFact(msgspec.Struct, frozen=True, gc=False):
    """The known facts about one enqueued kernel.

    ``role``: ``main`` for a kernel that computes a GEMM (or a part of one), else its kind of auxiliary kernel.
    ``gemm``: on one kernel per GEMM. ``padded``: (M, N, K) as that kernel ran it, if it differs. ``gemm_by``: the
    source of the sizes: ``arguments``, ``helpers``, ``source`` or ``build options``.
    """

    role: str = ""
    gemm: Gemm | None = None
    padded: Triple | None = None
    gemm_by: str = ""


MAIN = KernelFact(role="main")


def argument(arguments: tuple[str, ...], index: int) -> str:
    """Return argument ``index`` as logged, ``""`` if unknown."""
    return arguments[index] if index < len(arguments) else ""


@functools.lru_cache(maxsize=1 << 16)
def number(value: str) -> int | None:
    """Return a 4 or 8 byte argument as a little-endian unsigned integer (dvdt-ck.md 1.3)."""
    if len(value) not in (8, 16):
        return None
    try:
        return int.from_bytes(bytes.fromhex(value), "little")
    except ValueError:
        return None


@functools.lru_cache(maxsize=1 << 16)
def size(value: str) -> int | None:
    """Return a matrix dimension: a positive 4 byte integer."""
    if len(value) != 8:
        return None
    dimension = number(value)
    return dimension if dimension is not None and 0 < dimension < 1 << 31 else None


FIRST_ADDRESS = 1 << 16
"""Smaller arguments of 8 bytes are sizes."""


def buffers_among(arguments: Sequence[str]) -> tuple[int, ...]:
    """Return arguments of 8 bytes that may be handles, as little-endian numbers (dvdt-ck.md 1.3)."""
    return _numbers(arguments, 16, FIRST_ADDRESS, 1 << 64)


def integers_among(arguments: Sequence[str]) -> tuple[int, ...]:
    """Return arguments of 4 bytes as integers; floats are too large and left out."""
    return _numbers(arguments, 8, 4, 1 << 24)


def _numbers(arguments: Sequence[str], digits: int, least: int, stop: int) -> tuple[int, ...]:
    read = [number(argument) for argument in arguments if len(argument) == digits]
    return tuple([value for value in read if value is not None and least <= value < stop])


# -- Libraries ---------------------------------------------------------------------------------------------------------

# The kernels of one queue in order (positions in ``profile.activities``, without reads and writes), and an index into
# that list.
Place = tuple[list[int], int]


class Context:
    """The input of a library's function, and the place for its results."""

    def __init__(self, profile: Profile, facts: dict[int, KernelFact]) -> None:
        self.profile = profile
        self.activities = profile.activities
        self.sources = Sources(profile.opencl.programs)
        self.facts = facts
        self.ends = _ends(profile)

    def kernel(self, line: list[int], index: int) -> Activity | None:
        """Return the kernel at ``index`` of a queue's kernels, None beyond either end."""
        return self.activities[line[index]] if 0 <= index < len(line) else None


def _ends(profile: Profile) -> frozenset[int]:
    """Return the activities behind which the end of the profile may have cut off more of the same call.

    It is the last activity of each queue, because each queue may have a thread of its own. A profile with one queue has
    none if a later call is known: the thread went on."""
    last, _ = distinct(profile.commands.queue[::-1])
    ends = frozenset((len(profile.activities) - 1 - last).tolist())
    if len(ends) != 1:
        return ends
    calls = (
        events[-1].number
        for events in (profile.opencl.marks, profile.opencl.buffers, profile.opencl.programs)
        if events
    )
    return ends if int(profile.commands.number[-1]) > max(calls, default=-1) else frozenset()


class Row(msgspec.Struct, frozen=True):
    """A family of kernels whose sizes are found in one way. ``kernels`` matches whole names."""

    library: str
    kernels: re.Pattern[str]
    find: Callable[[Context, list[Place]], None]


def row(library: str, kernels: str, find: Callable[[Context, list[Place]], None]) -> Row:
    return Row(library, late(kernels), find)


def each_alone(read: Callable[[Context, Activity], KernelFact]) -> Callable[[Context, list[Place]], None]:
    """For kernels whose facts do not depend on the kernels around them."""

    def find(context: Context, places: list[Place]) -> None:
        known: dict[tuple[int, str, Size3 | None], KernelFact] = {}  # equal launches are one object
        for line, index in places:
            activity = context.activities[line[index]]
            key = id(activity.opencl), activity.name, activity.grid
            if key not in known:
                known[key] = read(context, activity)
            context.facts[line[index]] = known[key]

    return find


@functools.lru_cache(maxsize=1 << 12)
def by_arguments(gemm: Gemm | None) -> KernelFact:
    """Return the fact of a kernel whose arguments state its GEMM."""
    return MAIN if gemm is None else KernelFact(role="main", gemm=gemm, gemm_by="arguments")
