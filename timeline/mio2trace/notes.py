"""Notes for the person about the inputs: each kind of problem once, with its count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mio2trace.outgoing import visible

EXAMPLES = 3
LOGGED_ERROR, LOGGED_WARNING = "error in MIOpen's log", "warning in MIOpen's log"
NO_DATABASE = "warning in MIOpen's log that a database is not there"
"""Kinds of complaints of the library itself in its log. The last one is usual."""
CUT_OFF = "file cut off: read up to there"
"""The note of every reader on a file whose end is missing (`Notes.cut_off`). Refusals begin with the same words."""
_READ_UP_TO = (CUT_OFF, " damaged: read up to there")
UNREADABLE = "record of a profile that could not be read: skipped"
"""The note of every reader on a row, event or call that it left out alone (`Notes.unreadable`)."""
LEADS_OUT = "link that leads out of the folder: skipped; give its target as a path of its own"
NOT_USED = "log not used: nothing in it fits this profile"
NOT_JOINED = "logs not used: joining them with the profile failed, please report this"
LOGGED = (LOGGED_ERROR, LOGGED_WARNING, NO_DATABASE)


class InputError(Exception):
    """An input is unusable. The message is one line with the file, the place, what was found and what was expected."""

    def __init__(self, message: str) -> None:
        # The name of a file, and the quoted content, may hold any character.
        super().__init__(visible(message))


class OptionError(ValueError):
    """A wrong option of the call, or options that exclude each other."""


class Note:
    """One kind of problem: its count, and the first few places."""

    __slots__ = ("count", "kind", "places", "problem")

    def __init__(self, kind: str, count: int = 0, places: list[str] | None = None, problem: bool = True) -> None:
        self.kind = kind
        self.count = count
        self.places = [] if places is None else places
        self.problem = problem

    @property
    def is_cut(self) -> bool:
        """Whether a file is cut off, or damaged from some place on."""
        return self.kind.endswith(_READ_UP_TO)

    @property
    def is_lost(self) -> bool:
        """Whether an input, or the end of one, is not used. Every command reports such notes."""
        return self.is_cut or self.kind in (NOT_USED, NOT_JOINED, LEADS_OUT)

    @property
    def is_of_trace(self) -> bool:
        """Whether it is a remark on a written trace. Commands that write no trace leave it out."""
        return not self.problem and any(words in self.kind for words in _OF_TRACES)

    def __repr__(self) -> str:
        return f"<Note: {self}>"

    def __str__(self) -> str:
        # Many of a kind may be in one file, but a place within a file is of one.
        has_more = self.count > len(self.places) and (len(self.places) == EXAMPLES or ":" in "".join(self.places))
        where = f" ({', '.join(self.places)}{', ...' * has_more})" if self.places else ""
        return f"{self.kind}{where}" if self.count == 1 else f"{self.count:,} x {self.kind}{where}"


_OF_TRACES = (" not drawn", "no arrow leads to it")
"""Texts of remarks on a written trace."""


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

    def unreadable(self, place: str, count: int = 1) -> None:
        """Note records of a profile, each of which was left out: the profile is incomplete."""
        self.add(UNREADABLE, place, count)

    def cut_off(self, name: str, where: str = "") -> None:
        """Note once per file that the end of the file ``name`` is missing. ``where``: the place of the end."""
        note = self._notes.get(CUT_OFF)
        known = [] if note is None else [place.partition(": ")[0] for place in note.places]
        if not any(f"{name}:".startswith(f"{place}:") or place.startswith(f"{name}:") for place in known):
            self.add(CUT_OFF, f"{name}: {where}" if where else name)

    def remark(self, kind: str, place: str = "", count: int = 1) -> None:
        """Count a remark: worth knowing, but no problem."""
        self.add(kind, place, count, problem=False)

    def include(self, others: Iterable[Note]) -> None:
        """Add the notes of ``others``."""
        for other in others:
            self.add(other.kind, count=other.count, problem=other.problem)
            places = self._notes[other.kind].places
            places += other.places[: EXAMPLES - len(places)]

    def copy(self) -> Notes:
        """Return an independent copy of the notes."""
        copied = Notes()
        copied.include(self)
        return copied

    def go_back_to(self, earlier: Notes) -> None:
        """Drop all notes that were added since ``earlier`` was copied."""
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
    """Collect, by kind and place, every note of this context about inputs that are cut off or not used, whichever
    `Notes` gets it."""
    losses: _Losses = {}
    before = _watched.set(losses)
    try:
        yield losses
    finally:
        _watched.reset(before)


def said(line: str) -> None:
    """Drop the collected notes about lost inputs whose words are in ``line``: the reader has been told."""
    losses = _watched.get() or {}
    for kind, place in list(losses):
        if _words(kind) in line:
            del losses[kind, place]


def with_losses(message: str, notes: Iterable[Note]) -> str:
    """Return ``message`` and those notes about inputs that are cut off or not used which it does not mention."""
    return "; ".join([message, *(str(note) for note in notes if note.is_lost and _words(note.kind) not in message)])


def _words(kind: str) -> str:
    """Return the words that a refusal shares with a note."""
    return kind.partition(":")[0] if kind == CUT_OFF else kind
