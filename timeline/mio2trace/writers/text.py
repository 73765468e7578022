"""Text and numbers that both forms of a trace hold in the same way.

Text has no escapes, because importers differ in how they read them (perfetto-chrome-trace.md 2): no quote, no
backslash, no control character, no lone surrogate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST_NAME = 200
_CLEAN = dict.fromkeys((*range(32), *range(127, 160)), " ") | {ord('"'): "'", ord("\\"): "/"}
_NO_NAME = "(no name)"
_LARGEST = 1 << 63


def cleaned(value: Any) -> Any:
    """Return ``value`` with clean text. An integer that readers cannot hold becomes hexadecimal, like handles."""
    if isinstance(value, str):
        if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
            return value  # true of nearly all; cleaning takes ten times as long
        return value.translate(_CLEAN).encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        return hex(value)
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return value


def slice_name(text: str) -> str:
    """Return a slice's name: never empty, because viewers need one, and short."""
    name: str = cleaned(text).strip() or _NO_NAME
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
