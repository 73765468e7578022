"""The text of a record that an output may show, by the annotations of its fields (`mio2trace.model.columns`).

`tests/test_privacy.py` checks that every field of every record that can hold text has such an annotation.
"""

from __future__ import annotations

from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec

from mio2trace.model import choices, log, miopen, profile, tf
from mio2trace.model.columns import Holds, Sort

CUT_APART: dict[type[msgspec.Struct], tuple[str, ...]] = {tf.TfNode: ("name", ":", "op", "op_types")}
"""Two fields that a reader cut out of one text, the text between them, and fields that repeat the second one. Private
text may begin in the first field and end in the second, such as a serial number after its word."""


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
