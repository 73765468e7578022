"""What was met on the way and the person should know: every kind of problem once, with its count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from mio2trace.outgoing import visible

EXAMPLES = 3
LOGGED_ERROR, LOGGED_WARNING = "error in MIOpen's log", "warning in MIOpen's log"
NO_DATABASE = "warning in MIOpen's log that a database is not there"
"""Kinds of what the library itself complains of; the last is usual."""
CUT_OFF = "file cut off: read up to there"
"""The note of every reader on a file whose end is missing (`Notes.cut_off`). A refusal has its first words."""
_READ_UP_TO = (CUT_OFF, " damaged: read up to there")
LEADS_OUT = "link out of the folder passed over; expected what it leads to as a path of its own"
NOT_USED = "log not used: nothing in it fits this profile"
NOT_JOINED = "logs not used: joining them with the profile failed, please report this"
LOGGED = (LOGGED_ERROR, LOGGED_WARNING, NO_DATABASE)


class InputError(Exception):
    """An input cannot be used at all: one line that names the file, the place, what was found and what was expected."""

    def __init__(self, message: str) -> None:
        # What was found, and a file's name, may hold anything.
        super().__init__(visible(message))


class OptionError(ValueError):
    """An option of the call is none, or goes with no other."""


class Note:
    """One kind of problem: how often, and the first few places."""

    __slots__ = ("count", "kind", "places", "problem")

    def __init__(self, kind: str, count: int = 0, places: list[str] | None = None, problem: bool = True) -> None:
        self.kind = kind
        self.count = count
        self.places = [] if places is None else places
        self.problem = problem

    @property
    def is_cut(self) -> bool:
        """Whether it says that a file is cut off, or damaged from somewhere on."""
        return self.kind.endswith(_READ_UP_TO)

    @property
    def is_lost(self) -> bool:
        """Whether it says that an input, or the end of one, is not used: every command says so."""
        return self.is_cut or self.kind in (NOT_USED, NOT_JOINED, LEADS_OUT)

    def __repr__(self) -> str:
        return f"<Note: {self}>"

    def __str__(self) -> str:
        where = f" ({', '.join(self.places)}{', ...' if self.count > len(self.places) else ''})" if self.places else ""
        return f"{self.kind}{where}" if self.count == 1 else f"{self.count} x {self.kind}{where}"


OF_TRACES = (" not drawn", "no arrow leads to it")
"""Words of remarks on a written trace: without one they say nothing."""


class Notes:
    """Collects notes. A ``problem`` makes a ``--strict`` run fail; a remark does not."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}

    def add(self, kind: str, place: str = "", count: int = 1, problem: bool = True) -> None:
        """Count ``count`` more of ``kind``; keep ``place`` if it is one of the first."""
        note = self._notes.get(kind)
        if note is None:
            note = self._notes[kind] = Note(kind, problem=problem)
        note.count += count
        note.problem |= problem
        if place and len(note.places) < EXAMPLES and place not in note.places:
            note.places.append(place)
        watched = _watched.get()
        if place and watched is not None and note.is_lost:
            watched.setdefault((kind, place), Note(kind, 1, [place]))

    def cut_off(self, name: str, where: str = "") -> None:
        """Note, once per file, that the end of the file ``name`` is missing; ``where``: the place of the end."""
        note = self._notes.get(CUT_OFF)
        known = [] if note is None else [place.partition(": ")[0] for place in note.places]
        if not any(f"{name}:".startswith(f"{place}:") or place.startswith(f"{name}:") for place in known):
            self.add(CUT_OFF, f"{name}: {where}" if where else name)

    def remark(self, kind: str, place: str = "", count: int = 1) -> None:
        """As `add`, for what is worth saying but no problem."""
        self.add(kind, place, count, problem=False)

    def include(self, others: Notes) -> None:
        """Add what ``others`` hold."""
        for other in others:
            self.add(other.kind, count=other.count, problem=other.problem)
            places = self._notes[other.kind].places
            places += other.places[: EXAMPLES - len(places)]

    def restore(self, kind: str, count: int, places: Sequence[str], problem: bool) -> None:
        """Add a note as it was."""
        self.add(kind, count=count, problem=problem)
        kept = self._notes[kind].places
        kept += places[: EXAMPLES - len(kept)]

    def copy(self) -> Notes:
        """The same notes, which do not change with these."""
        copied = Notes()
        copied.include(self)
        return copied

    def go_back_to(self, earlier: Notes) -> None:
        """Forget what was added since ``earlier`` was copied of these."""
        self._notes = earlier.copy()._notes

    def __iter__(self) -> Iterator[Note]:
        return iter(self._notes.values())

    def __repr__(self) -> str:
        return f"<Notes: {'; '.join(map(str, self)) or 'none'}>"

    @property
    def problems(self) -> list[Note]:
        return [note for note in self._notes.values() if note.problem]


_Losses = dict[tuple[str, str], Note]
_watched: ContextVar[_Losses | None] = ContextVar("watched", default=None)


@contextmanager
def watched_for_losses() -> Iterator[_Losses]:
    """By kind and place, what is met of inputs that are not used, or cut off, while this context lasts, whoever's notes
    say it."""
    losses: _Losses = {}
    before = _watched.set(losses)
    try:
        yield losses
    finally:
        _watched.reset(before)


def said(line: str) -> None:
    """What ``line`` says of inputs that are not used or cut off need not be said again."""
    losses = _watched.get() or {}
    for kind, place in list(losses):
        if _words(kind) in line:
            del losses[kind, place]


def with_losses(message: str, notes: Iterable[Note]) -> str:
    """``message``, and what ``notes`` say of inputs that are not used or cut off, if it does not say so itself."""
    return "; ".join([message, *(str(note) for note in notes if note.is_lost and _words(note.kind) not in message)])


def _words(kind: str) -> str:
    """What a refusal has of the words of a note."""
    return kind.partition(":")[0] if kind == CUT_OFF else kind
