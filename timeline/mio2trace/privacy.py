"""What must not reach an output: a trace is made to be published (docs/privacy.md).

Applied once, where the records of all inputs come together, before anything is made of them: what the records do not
hold, no output can show. Two sorts of text fields are told apart, and `tests/test_privacy.py` keeps the two tables
complete: those that an output may show are cleaned here (`SHOWN`), and the others are never shown (`NEVER_SHOWN`):
handles and arguments, which join calls, program sources, build options. A name that many records share is looked at
once.

Found by their form: absolute paths, URLs, ``user@host``, host names with a known domain, addresses, pointers,
``NAME=value`` of an environment, passwords and tokens. User and host names without a form are learned from the inputs'
first bytes: glog's "Running on machine", a shell's prompt, home folders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Literal, TypeVar

import msgspec

from mio2trace.model.log import FrameworkLog, LayerTime, LogEvent, NetLayer
from mio2trace.model.miopen import Call, Command, Entry, Message, MiopenLog
from mio2trace.model.profile import BufferCreated, Enqueue, HostCall, Program, Queue
from mio2trace.model.tf import Execution, Printed, TfNode, ViewRow
from mio2trace.notes import OptionError

KINDS = ("paths", "hosts", "users", "pointers", "environment", "secrets")
"""What ``--keep`` may name."""

Sort = Literal["layer", "name", "text"]
SHOWN: dict[type[msgspec.Struct], dict[str, Sort]] = {
    Enqueue: {"name": "name"},
    HostCall: {"name": "name"},
    FrameworkLog: {"device_name": "text"},
    LayerTime: {"layer": "layer"},
    LogEvent: {"text": "layer"},
    NetLayer: {"layer": "layer", "type": "name", "tops": "layer"},
    Command: {"tag": "name", "text": "text"},
    Message: {"function": "name", "text": "text"},
    TfNode: {"name": "layer", "op": "layer", "op_types": "layer", "device": "layer", "place": "name"},
    ViewRow: {"name": "layer"},
}
"""Text that an output may show. ``layer``: names that may hold slashes of their own (``/block1/conv1``), so that only
what begins in a folder of the system is a path. ``name``: few distinct ones. ``text``: anything."""
NEVER_SHOWN: dict[type[msgspec.Struct], frozenset[str]] = {
    Queue: frozenset({"handle"}),
    Program: frozenset({"handle", "source", "options"}),
    Enqueue: frozenset({"kernel", "arguments", "buffer"}),
    BufferCreated: frozenset({"handle"}),
    Call: frozenset({"template"}),
    Entry: frozenset({"addresses"}),
    Execution: frozenset({"device", "label"}),
}
A_WORD: dict[type[msgspec.Struct], frozenset[str]] = {
    Call: frozenset({"api"}),
    Message: frozenset({"level", "kind"}),
    MiopenLog: frozenset({"counts"}),
    TfNode: frozenset({"attributes"}),
    ViewRow: frozenset({"own", "total"}),
    Printed: frozenset({"unit"}),
}
"""Of a vocabulary that the reader knows, or letters and digits only."""

_PART = r"""[^\s/\\"'<>|;,:()=\[\]{}*?]+"""
_MORE = rf"(?:[/\\]+{_PART})*[/\\]*(?: (?!-)[^\s/\\\"'<>|;,:()=]+(?=[/\\])(?:[/\\]+{_PART})+)*"
_BEFORE = r"""(?:(?<=-[ILBFo])|(?<![\w.)\]}/\\-]))"""
_ROOTS = (
    "home|Users|root|mnt|media|tmp|var|opt|usr|etc|scratch|nfs|net|srv|proc|sys|dev|run|lustre|gpfs|export|workspace"
    r"|work|data\d*|vol\w*|Volumes|private|nobackup|project\w*|local|boot|lib\w*|s?bin|app|github|builds?|jenkins"
)
_HOME_OR_DRIVE = (
    rf"~[\w.-]*[/\\](?:{_PART}{_MORE})?|(?<![A-Za-z0-9])[A-Za-z]:[/\\]+(?:{_PART}{_MORE})?|\\\\{_PART}{_MORE}"
)
_WITHIN = rf"(?<=[./])/(?:{_ROOTS})/{_PART}{_MORE}"
"""In ``x//home/me/y`` and ``../../home/me/y``."""
_LAYER_PATH = re.compile(rf"{_BEFORE}(?:/(?:{_ROOTS})/{_PART}{_MORE}|{_HOME_OR_DRIVE})|{_WITHIN}")
_PATH = re.compile(
    rf"{_BEFORE}(?:/{_PART}/(?:{_PART}{_MORE})?|/(?:{_ROOTS})(?!\w)|{_HOME_OR_DRIVE})|^/{_PART}$|{_WITHIN}"
)
_URL = re.compile(r"(?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>]+")
_USER_AT_HOST = re.compile(r"(?<![\w?@.+-])[\w.+-]+@[A-Za-z][\w.-]*")
_LABEL = r"(?:[A-Za-z0-9](?:[\w-]*[A-Za-z0-9])?\.)"
_HOST = re.compile(
    rf"(?<![\w./-])(?:{_LABEL}+(?:com|org|net|edu|gov|mil|local|lan|internal|localdomain|intranet|corp|example)"
    rf"|{_LABEL}{{2,}}(?:de|fr|uk|ch|cn|jp|ru|eu|io))(?![\w.(]|\.\w)"
    r"|(?<![\w.])(?:[1-9]\d|1\d\d|2[0-4]\d|25[0-5])(?:\.(?:\d{1,2}|1\d\d|2[0-4]\d|25[0-5])){3}(?![\w.])"
)
_POINTER = re.compile(r"(?<![0-9A-Za-z])0[xX][0-9a-fA-F]{5,16}(?![0-9A-Za-z])")
_BARE_POINTER = re.compile(r"(?<![0-9A-Za-z])(?=[0-9A-F]{16}(?![0-9A-Za-z]))(?:\d+[A-F]|[A-F]+\d)[0-9A-F]+")
_VALUE = r"""(?:'[^']*'|"[^"]*"|\S*)"""
_ENVIRONMENT = re.compile(
    rf"(?<![\w-])(?:[A-Z][A-Z0-9]*_[A-Z0-9_]*|PATH|HOME|USER|LOGNAME|HOSTNAME|HOST|PWD|SHELL|DISPLAY|LANG|TERM|MAIL)"
    rf"={_VALUE}"
)
_SENSITIVE = (
    r"[\w-]{0,40}(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
    r"[\w-]{0,40}"
)
_SECRET = re.compile(
    rf"(?<![\w-])(?:{_SENSITIVE}(?:\s*=\s*|:\s+)|--?{_SENSITIVE}\s+|authorization:\s*(?:\w+\s+)?){_VALUE}"
    r"|(?<!\w)(?:gh[pousr]_\w{16,}|AKIA[0-9A-Z]{12,}|xox[a-z]-[\w-]{8,}|sk-[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)",
    re.IGNORECASE,
)
_MAYBE_SECRET = (
    *("pass", "secret", "token", "_key", "-key", "apikey", "sskey", "tekey", "credential", "authoriz"),
    *("gho_", "ghp_", "ghu_", "ghs_", "ghr_", "akia", "xox", "sk-", "eyj"),
)
"""One of them is in every secret, in small letters: nearly all texts are done with them alone."""

_LEARNED: tuple[tuple[str, re.Pattern[bytes]], ...] = (
    ("hosts", re.compile(rb"Running on machine: ([\w.-]{2,64})")),
    ("hosts", re.compile(rb"(?<!\w)HOST(?:NAME)?=['\"]?([\w.-]{2,64})")),
    ("hosts", re.compile(rb"(?m)^[^\S\n]*\[?[\w.-]{1,32}@([\w.-]{2,64})[: ][~/][^\n$#]*[$#]")),
    ("users", re.compile(rb"(?m)^[^\S\n]*\[?([\w.-]{1,32})@[\w.-]{2,64}[: ][~/][^\n$#]*[$#]")),
    ("users", re.compile(rb"(?<!\w)(?:USER|LOGNAME|USERNAME)=['\"]?([\w.-]{2,32})")),
    ("users", re.compile(rb"(?:/home|/Users|[A-Za-z]:\\{1,2}Users)[/\\]{1,2}([\w.-]{2,32})(?=[/\\\"'\s:])")),
)
_SHORTEST_LEARNED = 3
_OF_NOBODY = frozenset(
    re.findall(
        r"\w+",
        "root user users ubuntu debian centos fedora admin administrator test tests work home build builds builder dev "
        "docker jenkins runner ci caffe miopen rocm rocmuser amd gpu host localhost local share shared public src bin "
        "opt data input output loss prob label conv pool relu norm bench benchmark guest default ctuning ck anaconda "
        "conda forward backward kernel layer iteration",
    )
)
"""Accounts and machines that name nobody, and words of our own: replacing them would only spoil names."""

_REMEMBERED = 1 << 13
R = TypeVar("R", bound=msgspec.Struct)


class Cleaner:
    """Takes what is private out of records. ``keep``: kinds to leave in. Raises `OptionError` for a kind that is none.

    Different names stay different: the second to become ``(path)`` becomes ``(path) #2``.
    """

    def __init__(self, keep: Iterable[str] = ()) -> None:
        unknown = [kind for kind in keep if kind not in KINDS]
        if unknown:
            raise OptionError(f"no such kind to keep: {', '.join(unknown)}; expected {', '.join(KINDS)}")
        self._cut = frozenset(KINDS) - frozenset(keep)
        self._learned: dict[str, str] = {}
        self._words: re.Pattern[str] | None = None
        self._names: dict[str, str] = {}
        self._taken: dict[str, int] = {}
        self._texts: dict[str, str] = {}

    def learn(self, head: bytes) -> None:
        """Note the user and host names that an input's first bytes tell."""
        for kind, pattern in _LEARNED:
            if kind not in self._cut:
                continue
            for found in pattern.findall(head):
                name = found.decode("utf-8", "replace").strip(".-")
                for part in (name, name.partition(".")[0]) if kind == "hosts" else (name,):
                    if len(part) >= _SHORTEST_LEARNED and part.lower() not in _OF_NOBODY and not part.isdigit():
                        self._learned[part] = f"({kind[:-1]})"
                        self._words = None

    def text(self, text: str, sort: Sort = "text") -> str:
        """``text`` without what is private; the same object when there is nothing."""
        cut = self._cut
        if "secrets" in cut:
            small = text.lower()
            for mark in _MAYBE_SECRET:
                if mark in small:
                    text = _SECRET.sub("(secret)", text)
                    break
        if "environment" in cut and "=" in text:
            text = _ENVIRONMENT.sub("(environment)", text)
        if "hosts" in cut and "://" in text:
            text = _URL.sub("(url)", text)
        if "@" in text and cut & {"users", "hosts"}:
            text = _USER_AT_HOST.sub("(user)", text)
        if "paths" in cut and ("/" in text or "\\" in text):
            text = (_LAYER_PATH if sort == "layer" else _PATH).sub("(path)", text)
        if "pointers" in cut:
            if "0x" in text or "0X" in text:
                text = _POINTER.sub("(pointer)", text)
            text = _BARE_POINTER.sub("(pointer)", text)
        if "hosts" in cut and "." in text:
            text = _HOST.sub("(host)", text)
        if self._learned and not (sort != "text" and text.isidentifier()):
            if self._words is None:
                longest_first = sorted(self._learned, key=lambda word: (-len(word), word))
                self._words = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
            text = self._words.sub(lambda found: self._learned[found[0]], text)
        return text

    def cleaned(self, records: Sequence[R]) -> list[R]:
        """The records without what is private. Those in which there is nothing are the same objects."""
        return [self._record(record) for record in records]

    def _record(self, record: R) -> R:
        changes = self._changes(record)
        for field in record.__struct_fields__:
            value = getattr(record, field)
            if type(value) is tuple and value and isinstance(value[0], msgspec.Struct):
                new = self._items(value)
                if new is not value:
                    changes[field] = new
        return msgspec.structs.replace(record, **changes) if changes else record

    def _changes(self, record: msgspec.Struct) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for field, sort in SHOWN.get(type(record), {}).items():
            value = getattr(record, field)
            new = self._value(value, sort)
            if new is not value:
                changes[field] = new
        return changes

    def _value(self, value: Any, sort: Sort) -> Any:
        clean: Callable[[str], str] = self._text if sort == "text" else lambda name: self._name(name, sort)
        if isinstance(value, str):
            return clean(value)
        new = tuple(map(clean, value))
        return value if new == value else new

    def _text(self, text: str) -> str:
        """Logs say the same again and again, but in a long one not for ever."""
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
        """A tuple of records, of several types perhaps; a million that share their names cost one look at each name."""
        dirty = {kind for kind in set(map(type, items)) if kind in SHOWN and self._is_dirty(kind, items)}
        if not dirty:
            return items
        cleaned: list[msgspec.Struct] = []
        for item in items:
            changes = self._changes(item) if type(item) in dirty else None
            cleaned.append(msgspec.structs.replace(item, **changes) if changes else item)
        return tuple(cleaned)

    def _is_dirty(self, kind: type[msgspec.Struct], items: Iterable[msgspec.Struct]) -> bool:
        dirty = False
        for field, sort in SHOWN[kind].items():
            if sort == "text":
                dirty = True  # each is another: looked at one by one
                continue
            values = set(map(attrgetter(field), filter(lambda item: type(item) is kind, items)))
            # In order: which name gets a number must not depend on how strings are hashed.
            for value in sorted(values):
                if self._value(value, sort) != value:
                    dirty = True
        return dirty
