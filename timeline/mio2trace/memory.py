"""Millions of small records and no cycles: the collector would only walk them again and again."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Within it nothing is looked at; where it is entered again it does nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # What was made goes straight to the oldest generation; else the collector would walk it all at once now.
        gc.freeze()
        gc.unfreeze()
        gc.enable()
