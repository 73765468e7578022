"""The folder of the real samples, and one line if it is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SHARED = Path(os.environ.get("MIO2TRACE_SHARED") or Path(__file__).resolve().parent.parent.parent / "shared")


def require(option: str, *paths: Path) -> None:
    """Exit with one line that names the option if one of ``paths`` is not there."""
    for path in paths:
        if not path.exists():
            sys.exit(f"no samples: {path} is not there; {option} names another place")
