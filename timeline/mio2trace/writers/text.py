"""Text and numbers as both forms of a trace carry them, so that both hold the same.

Importers differ in how they read escapes, so text has none at all (perfetto-chrome-trace.md 2): no quote, no
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
    """``value`` with clean text; an integer that no reader holds becomes hexadecimal, as handles are written."""
    if isinstance(value, str):
        if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
            return value  # as nearly all; the rest takes ten times as long
        return value.translate(_CLEAN).encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        return hex(value)
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return value


def slice_name(text: str) -> str:
    """A slice's name: viewers want one, and a short one."""
    name: str = cleaned(text).strip() or _NO_NAME
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
