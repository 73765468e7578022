"""`python .github/release_notes.py v1.2.3`: the changelog's section of a release.

Exit 1 with one line where the tag is not the version of this tree, or the changelog has no section for it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def notes(tag: str) -> str:
    """Raises `SystemExit` with a line for a person."""
    source = (ROOT / "timeline" / "mio2trace" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    version = found[1] if found else "none"
    if tag != f"v{version}":
        raise SystemExit(f"the tag is {tag}, the version of this tree {version}")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    section = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## \[|^\[[^\]]+\]: |\Z)",
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    if section is None or not section[1].strip():
        raise SystemExit(f"CHANGELOG.md has no section '## [{version}] - date', or nothing in it")
    return section[1].strip() + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    sys.stdout.write(notes(sys.argv[1]))
