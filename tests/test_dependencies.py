"""What the program depends on at run time: few libraries, with licences and versions that were decided on."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("view", "query", "batch", "cluster", "mcp")
ALLOWED = frozenset(
    {"Apache-2.0", "BSD-3-Clause", "BSD-2-Clause", "MIT", "ISC", "PSF-2.0", "MPL-2.0", "0BSD", "Zlib", "CC0-1.0"}
)
"""Fit beside Apache-2.0 when a library is installed as it is. A new one is a decision, not a detail."""
_CLASSIFIED = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_FREE_TEXT = {
    "apache-2.0": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd": "BSD-3-Clause",  # partd, whose file has three clauses
    "mit": "MIT",
}


def run_time() -> dict[str, Requirement]:
    """The project's requirements by name, those of its extras with them."""
    lines = [*PROJECT["dependencies"], *(line for extra in EXTRAS for line in PROJECT["optional-dependencies"][extra])]
    return {requirement.name: requirement for requirement in map(Requirement, lines)}


def closure() -> set[str]:
    """All that is installed because of them, on this system."""
    names: set[str] = set()
    waiting = list(run_time())
    while waiting:
        name = waiting.pop().lower()
        if name not in names:
            names.add(name)
            for line in distribution(name).requires or ():
                requirement = Requirement(line)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    waiting.append(requirement.name)
    return names


def licence(name: str) -> str:
    """As an SPDX expression: the package's own, or what its classifiers or its free text say."""
    metadata = distribution(name).metadata
    for expression in metadata.get_all("License-Expression") or ():
        return str(expression)
    classifiers = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier") or () if "License ::" in text]
    if classifiers:
        return " AND ".join(_CLASSIFIED.get(text, text) for text in classifiers)
    text = "".join(metadata.get_all("License") or ()).strip()
    return _FREE_TEXT.get(text.lower(), text) or "none"


def allowed(expression: str) -> bool:
    """All parts of an AND, one of each OR."""
    return all(
        any(choice.strip("() ") in ALLOWED for choice in re.split(r"\bOR\b", part))
        for part in re.split(r"\bAND\b", expression)
    )


def test_every_licence_is_one_that_was_decided_on() -> None:
    try:
        licences = {name: licence(name) for name in sorted(closure())}
    except PackageNotFoundError as error:
        pytest.fail(f"not installed: {error}; pip install -e '.[test]'")
    assert {"click", "msgspec", "orjson"} <= set(licences)
    assert not {name: text for name, text in licences.items() if not allowed(text)}


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("MIT", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only", False),
        ("none", False),
    ],
)
def test_a_licence_fits_when_all_its_parts_do(expression: str, fits: bool) -> None:
    assert allowed(expression) is fits


def test_the_oldest_versions_are_those_that_the_tests_run_with() -> None:
    """pyproject.toml's lower bounds and requirements/minimum.txt are the same, and nothing else is pinned there than
    what they need."""
    pins = dict(
        re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / "requirements" / "minimum.txt").read_text(), re.MULTILINE)
    )
    bounds = {}
    for line in PROJECT["dependencies"]:
        requirement = Requirement(line)
        assert [each.operator for each in requirement.specifier] == [">="], f"one lower bound and no other: {line}"
        bounds[requirement.name] = Version(next(iter(requirement.specifier)).version)
    versions = {name: Version(version) for name, version in pins.items()}
    assert {name: versions.get(name) for name in bounds} == bounds
    assert {*versions} <= closure()


def test_what_is_installed_is_not_older_than_allowed() -> None:
    for name, requirement in run_time().items():
        assert requirement.specifier.contains(distribution(name).version), name


def test_the_extra_installs_all_that_tests_import() -> None:
    """What stands at the head of a module of tests, where nothing can skip, is one of the program's or of `[test]`."""
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *extras["test"], *extras["batch"], *extras["mcp"]]
    wanted = {re.sub(r"[-_.]+", "-", Requirement(line).name).lower() for line in lines}
    whose = packages_distributions()
    missing = set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        head = path.read_text("utf-8").partition("\n\n\n")[0]
        names = re.findall(r"^(?:import|from) (\w+)", head, re.MULTILINE)
        for name in {*names} - {*sys.stdlib_module_names, "tests", "benchmarks"}:
            found = {re.sub(r"[-_.]+", "-", each).lower() for each in whose.get(name, [name])}
            if not found & {*wanted, "mio2trace"}:
                missing.add(f"{path.name}: {name}")
    assert not missing
