"""Keep private data out of outputs: a trace is made to be published (docs/privacy.md).

The rules are applied once, to the records of all inputs, before anything is made from them. Text that the records do
not hold cannot reach an output. There are two kinds of text fields (`fields`). Fields that an output may show are
cleaned. All others are never shown: handles and arguments (which join calls), program sources, build options.

Private text is found by its form: absolute paths, URLs, ``user@host``, host names with a known domain, addresses,
pointers, ``NAME=value`` of an environment, passwords and tokens. User and host names have no special form. They are
learned from the first bytes of the inputs: glog's "Running on machine", the prompt of a shell, home folders. Text that
many records share is checked once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from mio2trace.model import Holds, Sort, choices, log, miopen, profile, tf
from mio2trace.model.choices import SolverRecord
from mio2trace.model.tables import Activities, Calls, LayerTimes, Pool
from mio2trace.notes import OptionError
from mio2trace.patterns import late
from mio2trace.privacy.rules import KINDS, OF_NOBODY, RULES, Rule, Rules, random

__all__ = ["KINDS", "Cleaner"]


CUT_APART: dict[type[msgspec.Struct], tuple[str, ...]] = {tf.TfNode: ("name", ":", "op", "op_types")}
"""Two fields that a reader cut out of one text, the text between them, and fields that repeat the second one. Private
text may begin in the first field and end in the second, such as a serial number after its word."""


# -- The text of a record that an output may show ----------------------------------------------------------------------
#
# It is stated by the annotations of its fields (`mio2trace.model`). `tests/test_privacy.py` checks that every
# field of every record that can hold text has one.


@cache
def records() -> tuple[type[msgspec.Struct], ...]:
    """Return all classes of records that a reader gives, including nested ones."""
    found = (kind for module in (profile, log, miopen, tf, choices) for kind in vars(module).values())
    return tuple(dict.fromkeys(kind for kind in found if isinstance(kind, type) and issubclass(kind, msgspec.Struct)))


def look_at_all() -> None:
    """Inspect the fields of all of them, which takes as long as reading a small run."""
    for kind in records():
        shown(kind)


@cache
def text_fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the kind of text of each field of a record (`Holds.what`)."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: held.what for name in kind.__struct_fields__ if (held := _holds(hints[name])) is not None}


@cache
def shown(kind: type[msgspec.Struct]) -> dict[str, Sort]:
    """Return the text fields of a record that an output may show."""
    return {name: what for name, what in text_fields(kind).items() if what in get_args(Sort)}  # type: ignore[misc]


@cache
def never_shown(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the fields whose text no output shows."""
    return frozenset(name for name, what in text_fields(kind).items() if what == "never")


def _holds(hint: Any) -> Holds | None:
    for part in (*getattr(hint, "__metadata__", ()), *get_args(hint)):
        found = part if isinstance(part, Holds) else _holds(part)
        if found is not None:
            return found
    return None


# -- The cleaner -------------------------------------------------------------------------------------------------------

_REMEMBERED = 1 << 13
_HALF = late(r"(?<![\w+/-])[\w+/-]{18,}+(?!\w)")
R = TypeVar("R", bound=msgspec.Struct)


class Cleaner:
    """Removes private text from records. ``keep``: kinds to leave in. Raises `OptionError` for an unknown kind.

    Different names stay different: the second name that becomes ``(path)`` is ``(path) #2``.
    """

    def __init__(self, keep: Iterable[str] = ()) -> None:
        unknown = [kind for kind in keep if kind not in KINDS]
        if unknown:
            raise OptionError(f"no such kind to keep: {', '.join(unknown)}; expected {', '.join(KINDS)}")
        self._cut = frozenset(KINDS) - frozenset(keep)
        self._rules: dict[Sort, Rules] = {
            sort: Rules(rule for rule in RULES if sort in rule.sorts and rule.kinds & self._cut)
            for sort in get_args(Sort)
        }
        self._learned: dict[str, str] = {}
        self._words: re.Pattern[str] | None = None
        self._names: dict[str, str] = {}
        self._taken: dict[str, int] = {}
        self._texts: dict[str, str] = {}

    def learn(self, head: bytes) -> None:
        """Note the user and host names in the first bytes of an input."""
        for kind, name in names_in(head):
            if kind in self._cut:
                self._learned[name] = f"({kind[:-1]})"
                self._words = None

    def text(self, text: str, sort: Sort = "text") -> str:
        """Return ``text`` without private parts; the same object if there are none."""
        text = self._rules[sort].without_private(text)
        if self._learned and not (sort != "text" and text.isidentifier()):
            if self._words is None:
                longest_first = sorted(self._learned, key=lambda word: (-len(word), word))
                self._words = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
            text = self._words.sub(lambda found: self._learned[found[0]], text)
        return text

    def quoted(self, text: str) -> str:
        """Clean a message that quotes a piece of an input. A piece may be half of a secret, which is shorter than the
        whole."""
        text = self.text(text)
        return _HALF.sub(random, text) if "secrets" in self._cut else text

    def cleaned(self, records: Sequence[R]) -> list[R]:
        """Return the records without private text. Records without such text are the same objects."""
        return [self._record(record) for record in records]

    def _record(self, record: R) -> R:
        changes = self._changes(record)
        for field in record.__struct_fields__:
            value = getattr(record, field)
            new = value
            if isinstance(value, Activities | Calls | LayerTimes):
                new = self._table(value)
            elif type(value) is tuple and value and isinstance(value[0], msgspec.Struct):
                new = self._items(value)
            elif isinstance(value, msgspec.Struct):  # a side table
                new = self._record(value)
            if new is not value:
                changes[field] = new
        return msgspec.structs.replace(record, **changes) if changes else record

    def _changes(self, record: msgspec.Struct) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for field, sort in shown(type(record)).items():
            value = getattr(record, field)
            new = self._value(value, sort)
            if new is not value:
                changes[field] = new
        if type(record) in CUT_APART:
            self._rejoin(record, changes)
        return changes

    def _rejoin(self, record: msgspec.Struct, changes: dict[str, Any]) -> None:
        """If two fields together have private text, remove it from the second field and from fields that repeat it."""
        first, between, second, *repeating = CUT_APART[type(record)]
        rest = changes.get(second, getattr(record, second))
        whole = f"{changes.get(first, getattr(record, first))}{between}{rest}"
        clean = self.text(whole, shown(type(record))[second])
        if clean == whole or clean.endswith(between + rest):
            return
        changes[second] = left = clean.rpartition(between)[2]
        for field in repeating:
            words = changes.get(field, getattr(record, field))
            changes[field] = tuple(left if word == rest else word for word in words)

    def _value(self, value: Any, sort: Sort) -> Any:
        clean: Callable[[str], str] = self._text if sort == "text" else lambda name: self._name(name, sort)
        if isinstance(value, str):
            return clean(value)
        new = tuple(map(clean, value))
        return value if new == value else new

    def _text(self, text: str) -> str:
        """Remember cleaned texts, because logs repeat them; but not without limit, because a log may be long."""
        known = self._texts.get(text)
        if known is None:
            if len(self._texts) > _REMEMBERED:
                self._texts.clear()
            known = self._texts[text] = self.text(text)
        return known

    def _name(self, name: str, sort: Sort) -> str:
        known = self._names.get(name)
        if known is None:
            known = self.text(name, sort)
            if known != name:
                number = self._taken[known] = self._taken.get(known, 0) + 1
                known = known if number == 1 else f"{known} #{number}"
                self._names[name] = known
        return known

    def _items(self, items: tuple[msgspec.Struct, ...]) -> tuple[msgspec.Struct, ...]:
        """Clean a tuple of records of one or more types. A million records that share their names cost one check per
        name."""
        if type(items[0]) is SolverRecord:
            items = self._solvers(items)  # type: ignore[arg-type]
        dirty = {kind for kind in set(map(type, items)) if shown(kind) and self._is_dirty(kind, items)}
        if not dirty:
            return items
        cleaned: list[msgspec.Struct] = []
        for item in items:
            changes = self._changes(item) if type(item) in dirty else None
            cleaned.append(msgspec.structs.replace(item, **changes) if changes else item)
        return tuple(cleaned)

    def _table(self, table: Any) -> Any:
        """The names of calls, commands and layers: few, and each is looked at once. Which one gets a number depends on
        their order alone, not on how strings are hashed."""
        changes: dict[str, Any] = {}
        for field in table.whole:
            whole = getattr(table, field)
            if (clean := self._table(whole)) is not whole:
                changes[field] = clean
        for field, sort in shown(table.of).items():
            names = getattr(table, field).values
            for name in sorted(names):
                self._name(name, sort)
            clean_names = [self._name(name, sort) for name in names]
            if clean_names != list(names):
                changes[field] = Pool(clean_names, getattr(table, field).codes)
        return table.changed(**changes) if changes else table

    def _solvers(self, records: tuple[SolverRecord, ...]) -> tuple[SolverRecord, ...]:
        """Clean the solvers of a database, which names the same few in each record."""
        names = sorted({one.solver for record in records for one in record.solvers})
        if [self._name(name, "name") for name in names] == names:
            return records
        return tuple(msgspec.structs.replace(record, solvers=self._items(record.solvers)) for record in records)

    def _is_dirty(self, kind: type[msgspec.Struct], items: Iterable[msgspec.Struct]) -> bool:
        dirty = False
        for field, sort in shown(kind).items():
            values = set(map(attrgetter(field), filter(lambda item: type(item) is kind, items)))
            if sort == "text":
                # if nearly all texts are distinct, each one is checked by itself
                dirty = dirty or len(values) > _REMEMBERED or any(self._value(one, sort) != one for one in values)
                continue
            # In order: which name gets a number must not depend on how strings are hashed.
            for value in sorted(values):
                if self._value(value, sort) != value:
                    dirty = True
        return dirty or kind in CUT_APART


# -- User and host names, which have no special form: learned from the first bytes of an input -------------------------

_LEARNED: tuple[tuple[str, tuple[bytes, ...], re.Pattern[bytes]], ...] = (
    ("hosts", (b"Running on machine: ",), late(rb"Running on machine: ([\w.-]{2,64})")),
    ("hosts", (b"HOST",), late(rb"(?<!\w)HOST(?:NAME)?=['\"]?([\w.-]{2,64})")),
    ("hosts", (b"@",), late(rb"(?m)^[^\S\n]*\[?[\w.-]{1,32}@([\w.-]{2,64})[: ][~/][^\n$#]*[$#]")),
    ("users", (b"@",), late(rb"(?m)^[^\S\n]*\[?([\w.-]{1,32})@[\w.-]{2,64}[: ][~/][^\n$#]*[$#]")),
    ("users", (b"USER", b"LOGNAME"), late(rb"(?<!\w)(?:USER|LOGNAME|USERNAME)=['\"]?([\w.-]{2,32})")),
    (
        "users",
        (b"user", b"login"),
        late(
            rb"(?<![\w-])(?:--user(?:name)?[ =]|(?:user(?:name)?|login)(?:=|: )['\"]?)([A-Za-z][\w.-]{1,31})(?![\w.-])"
        ),
    ),
    (
        "hosts",
        (b"hostname", b"--host"),
        late(rb"(?<![\w-])(?:--host(?:name)?[ =]|hostname(?:=|: )['\"]?)([A-Za-z][\w.-]{1,63})(?![\w.-])"),
    ),
    (
        "users",
        (b"/home", b"Users"),
        late(rb"(?:/home|/Users|[A-Za-z]:\\{1,2}Users)[/\\]{1,2}([\w.-]{2,32})(?=[/\\\"'\s:])"),
    ),
)
"""(kind, text that every match contains, the name). A match is in one line, so only lines with that text are searched,
which is a hundred times as fast."""
_SHORTEST_LEARNED = 3


def names_in(head: bytes) -> Iterator[tuple[str, str]]:
    """Yield (kind, name) for each name in ``head``; for a host with a domain also its first label."""
    for kind, marks, pattern in _LEARNED:
        for match in (found for mark in marks for line in _lines_with(mark, head) for found in pattern.findall(line)):
            name = match.decode("utf-8", "replace").strip(".-")
            for part in (name, name.partition(".")[0]) if kind == "hosts" else (name,):
                if len(part) >= _SHORTEST_LEARNED and part.lower() not in OF_NOBODY and not part.isdigit():
                    yield kind, part


def _lines_with(mark: bytes, text: bytes) -> Iterator[bytes]:
    at = text.find(mark)
    while at >= 0:
        end = text.find(b"\n", at) + 1 or len(text)
        yield text[text.rfind(b"\n", 0, at) + 1 : end]
        at = text.find(mark, end)


# -- Replacement names for private values of which only equality matters: addresses, machines --------------------------

FIRST_ADDRESS = 1 << 16
"""Smaller values are numbers: offsets, sizes."""
_BASE, _STEP = 0x1000_0000, 0x100
"""New addresses of eight digits fit into handles of 32 bits."""
_HEX = late(r"(0[xX])?([0-9A-Fa-f]+)")
_NOT_HEX = late(r"[^0-9A-Fa-f]+")


class Pseudonyms:
    """Give equal values equal names, in the order of first use, across all files that share this object."""

    def __init__(self) -> None:
        self._addresses: dict[int, int] = {}
        self._words: dict[str, dict[str, str]] = {}

    def address(self, value: int) -> int:
        if value < FIRST_ADDRESS:
            return value
        return self._addresses.setdefault(value, _BASE + _STEP * len(self._addresses))

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
        if not (value in self._addresses or (len(text) == 16 and 1 << 32 <= value < 1 << 56)):
            return text
        return self.address(value).to_bytes(len(text) // 2, "little").hex()

    def word(self, what: str, text: str) -> str:
        """Return ``machine 2``; an empty text stays empty."""
        of = self._words.setdefault(what, {})
        return of.setdefault(text, f"{what} {len(of) + 1}") if text else ""


def is_pseudonym(what: str, text: str) -> bool:
    """Return whether `Pseudonyms.word` made a text."""
    return text.startswith(f"{what} ")


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

        return msgspec.structs.replace(rule, becomes=becomes)
