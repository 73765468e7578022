"""The rooms of the house and which may know which."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "timeline" / "mio2trace"
ARCHITECTURE = PACKAGE.parents[1] / "docs" / "architecture.md"

_ROWS = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", ARCHITECTURE.read_text("utf-8"), re.MULTILINE)
MAY_IMPORT = {room: set(re.findall(r"`(\w+)`", targets)) for room, targets in _ROWS}
"""A room is a module or a package of `mio2trace`; it may import itself and what the page's table has behind it."""
# The front doors: the version for all, `convert` for users, `python -m mio2trace`.
FRONT_DOORS = {
    "__init__": {"align", "analysis", "comparing", "conversion", "dataset", "files", "notes"},
    "__main__": {"cli", "machine"},
}

MODULES = sorted(PACKAGE.rglob("*.py"))
assert MODULES


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def statements(block: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements in a block. A walk that includes their expressions takes five times as long."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for one in getattr(block, field, ()):
            yield one
            yield from statements(one)


def imports(tree: ast.Module, path: Path) -> set[tuple[str, int]]:
    """(room or foreign name, line) of every import in a module, also the late ones inside functions."""
    found: set[tuple[str, int]] = set()
    here = ("mio2trace", *path.relative_to(PACKAGE).with_suffix("").parts)
    known = [*statements(tree)]
    is_whole = any(isinstance(one, ast.Import) and "mio2trace" in [name.name for name in one.names] for one in known)
    for node in ast.walk(tree) if is_whole else known:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name != "mio2trace"]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mio2trace":
            names = [f"mio2trace.{node.attr}"]  # what a bare `import mio2trace` is used for
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # `from mio2trace import notes` names a room, `from mio2trace.notes import Notes` an object in one
            names = [f"{module}.{alias.name}" if module == "mio2trace" else module for alias in node.names]
        else:
            continue
        found |= {(name, node.lineno) for name in names}
    return found


def violations(path: Path, source: str) -> list[str]:
    """Imports of ours that the table does not allow."""
    this = room(path)
    allowed = (MAY_IMPORT | FRONT_DOORS)[this] | {this}
    out = []
    for name, line in sorted(imports(ast.parse(source), path)):
        parts = name.split(".")
        if parts[0] != "mio2trace":
            if parts[0] in {"tests", "benchmarks"}:
                out.append(f"{path.name}:{line}: the program imports {name}")
            continue
        if parts[1] not in allowed | {"__version__"}:
            out.append(f"{path.name}:{line}: {this} imports {parts[1]}")
    return out


def test_imports_follow_the_arrows() -> None:
    """cli -> conversion -> {readers, align, draw, writers} -> records; nothing points back."""
    assert {room(path) for path in MODULES} <= MAY_IMPORT.keys() | FRONT_DOORS.keys(), "a room that is not in the table"
    assert [fault for path in MODULES for fault in violations(path, path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("module", "source", "allowed"),
    [
        ("trace.py", "from mio2trace.model import profile", False),
        ("writers/chrome_json.py", "from mio2trace.model.profile import Call", False),
        ("readers/dvdt.py", "import mio2trace.align.clocks.axis", False),
        ("readers/dvdt.py", "from ..align import clocks", False),
        ("readers/dvdt.py", "from mio2trace import conversion", False),
        ("align/layers.py", "def late():\n    from mio2trace.trace import Slice", False),
        ("draw.py", "from .writers import chrome_json", False),
        ("model/log.py", "from mio2trace.notes import Notes", False),
        ("conversion.py", "import mio2trace.cli", False),
        ("conversion.py", "import mio2trace\nprint(mio2trace.cli.main)", False),
        ("conversion.py", "import tests.conftest", False),
        ("readers/dvdt.py", "from mio2trace.model.profile import Call\nfrom . import caffe_log\nimport re", True),
        ("writers/__init__.py", "from ..trace import Trace\nfrom mio2trace.writers import chrome_json", True),
        ("cli.py", "from mio2trace import __version__, conversion", True),
        ("summary.py", "import mio2trace\nprint(mio2trace.__version__)", True),
    ],
)
def test_an_arrow_that_points_back_is_found(module: str, source: str, allowed: bool) -> None:
    assert (violations(PACKAGE / module, source) == []) == allowed


def test_the_arrows_have_no_circle() -> None:
    left = dict(MAY_IMPORT)
    while left:
        free = [name for name, targets in left.items() if not targets & left.keys()]
        assert free, f"these rooms know each other: {sorted(left)}"
        for name in free:
            del left[name]


def test_every_room_stands_in_the_table_once() -> None:
    assert len(_ROWS) == len(MAY_IMPORT) > 30
    assert MAY_IMPORT.keys() == {room(path) for path in MODULES} - FRONT_DOORS.keys()
    assert {target for targets in MAY_IMPORT.values() for target in targets} <= MAY_IMPORT.keys()


def test_the_page_names_what_is_there() -> None:
    named = set(re.findall(r"[\w/]+(?:\.py|/)(?![\w.])", ARCHITECTURE.read_text("utf-8")))
    root = PACKAGE.parents[1]
    paths = [path.relative_to(root).as_posix() for part in ("timeline", "tests") for path in (root / part).rglob("*")]
    assert len(named) > 40
    assert [
        name for name in sorted(named) if not any(f"/{path}/".endswith(f"/{name.strip('/')}/") for path in paths)
    ] == []


def test_no_module_is_called_utils() -> None:
    """A helper lives beside its caller; one with two callers has a name."""
    assert [path.stem for path in MODULES if path.stem in {"util", "utils", "helpers", "common", "misc"}] == []


def test_nobody_asks_for_the_family_of_a_problem() -> None:
    """What differs from family to family is a method of `Problem`: no ladder of `isinstance` has to grow with them."""
    kinds = {
        node.name
        for path in (PACKAGE / "ops").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Problem")
    }
    assert len(kinds) > 10
    asked = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in MODULES
        if "isinstance(" in (text := path.read_text("utf-8")) and "Problem" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and kinds & {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
    ]
    assert asked == []
