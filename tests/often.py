"""What tests do again and again."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def saved(path: Path, content: str | bytes) -> Path:
    """A file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def present(value: T | None) -> T:
    """What is there: a test of it may go on."""
    assert value is not None
    return value
