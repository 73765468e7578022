"""What runs where the repository is hosted: actions pinned, least permissions, one version, the changelog's section."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fuzz
from mio2trace import __version__
from tests.conftest import ROOT, missing

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def loaded(path: Path) -> Any:
    if importlib.util.find_spec("yaml") is None:
        missing("docs", "PyYAML is not here: pip install -e '.[docs]'")
    import yaml

    return yaml.safe_load(path.read_text("utf-8"))


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = loaded(path)["jobs"]
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_to_a_commit_with_its_version_beside(path: Path) -> None:
    """A tag can be moved; forty digits cannot."""
    uses = re.findall(r"uses: *(.*)", path.read_text("utf-8"))
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_may_read_and_what_publishes_may_do_that_only(path: Path) -> None:
    """Write access is a job's own; nothing that builds or tests has any, or keeps the checkout's token."""
    assert loaded(path)["permissions"] == {"contents": "read"}
    for name, job in jobs(path).items():
        permissions = job.get("permissions", {})
        builds = any(step.get("uses", "").startswith("actions/checkout@") for step in job["steps"])
        assert not (builds and permissions), name
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"] == {"persist-credentials": False}
            assert "${{" not in step.get("run", ""), "a tag's or branch's name is text, not a part of a script"


def test_what_is_published_is_published_without_a_token() -> None:
    """Trusted publishing, attestations, a release of the same files; in this order, only by a version's tag."""
    path = GITHUB / "workflows" / "release.yml"
    assert re.search(r'^on:\n  push:\n    tags: \["v\*"\]\n$', path.read_text("utf-8"), re.MULTILINE)
    work = jobs(path)
    assert [job.get("needs") for job in work.values()] == [None, "build", "pypi"]
    assert work["pypi"]["permissions"] == {"id-token": "write"}
    assert work["github"]["permissions"] == {"contents": "write"}
    assert work["pypi"]["steps"][-1]["with"] == {"attestations": True}
    assert "secrets." not in path.read_text("utf-8")


def test_each_python_that_is_named_is_tested() -> None:
    named = {found[1] for text in PROJECT["classifiers"] if (found := re.fullmatch(r"Programming.* :: (3\.\d+)", text))}
    matrix = jobs(GITHUB / "workflows" / "test.yml")["test"]["strategy"]["matrix"]["python"]
    assert set(matrix) == named
    assert PROJECT["requires-python"] == f">={min(named, key=lambda version: int(version[2:]))}"


def test_the_nightly_form_of_fuzzing_runs_every_night() -> None:
    """A hundred thousand cases of a seed of the day, whose number and files are kept where one breaks the law."""
    path = GITHUB / "workflows" / "nightly.yml"
    assert re.search(r'^  schedule:\n    - cron: "\d+ \d+ \* \* \*"\n', path.read_text("utf-8"), re.MULTILINE)
    steps = jobs(path)["fuzz"]["steps"]
    (command,) = (step["run"] for step in steps if "--nightly" in step.get("run", ""))
    words = command.split()
    assert words[:3] == ["python", "benchmarks/fuzz.py", "--nightly"]
    assert steps[-1]["with"]["path"] == words[words.index("--failing") + 1]
    assert fuzz.NIGHTLY == 100_000


def release_notes(root: Path, tag: str) -> subprocess.CompletedProcess[str]:
    script = root / ".github" / "release_notes.py"
    return subprocess.run([sys.executable, str(script), tag], capture_output=True, text=True, timeout=60)


def test_the_notes_of_a_release_are_its_section_of_the_changelog(tmp_path: Path) -> None:
    """A tag of another version, a section without a date or without a line end the release."""
    (tmp_path / ".github").mkdir()
    (tmp_path / "timeline" / "mio2trace").mkdir(parents=True)
    (tmp_path / ".github" / "release_notes.py").write_text((GITHUB / "release_notes.py").read_text())
    (tmp_path / "timeline" / "mio2trace" / "__init__.py").write_text('__version__ = "1.2.0"\n')
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(
        "# Changelog\n\n## [Unreleased]\n\n* c\n\n## [1.2.0] - 2026-01-02\n\n* b\n\n## [1.1.0] - x\n* a\n"
    )
    done = release_notes(tmp_path, "v1.2.0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "* b\n", "")
    for tag, text, said in (
        ("v1.2.1", changelog.read_text(), "the tag is v1.2.1, the version of this tree 1.2.0\n"),
        (
            "v1.2.0",
            "## [1.2.0] - unreleased\n\n* b\n",
            "CHANGELOG.md has no section '## [1.2.0] - date', or nothing in it\n",
        ),
        (
            "v1.2.0",
            "## [1.2.0] - 2026-01-02\n\n## [1.1.0] - x\n* a\n",
            "CHANGELOG.md has no section '## [1.2.0] - date', or nothing in it\n",
        ),
    ):
        changelog.write_text(text)
        done = release_notes(tmp_path, tag)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_this_version_has_its_section() -> None:
    done = release_notes(ROOT, f"v{__version__}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("### ")


def test_the_version_is_written_in_one_place() -> None:
    """The package has it; distributions, the site, the manual page, the citation take it or have none."""
    assert PROJECT["dynamic"] == ["version"]
    text = __version__.replace(".", r"\.")
    for path in (ROOT / "pyproject.toml", ROOT / "CITATION.cff", ROOT / "docs" / "conf.py", ROOT / "README.md"):
        assert not re.search(rf"(?<![\d.]){text}(?![\d.])", path.read_text("utf-8")), path.name


def test_forms_for_issues_ask_for_a_bundle() -> None:
    """What makes a report one that can be worked on, and nothing private with it."""
    for name in ("bug", "feature"):
        form = loaded(GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml")
        assert {"name", "description", "body"} <= set(form)
        fields = {part["id"]: part for part in form["body"]}
        assert "mio2trace bundle run.log run_results.db -o " in fields["bundle"]["attributes"]["description"]


def test_the_citation_has_what_the_format_asks_for() -> None:
    citation = loaded(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["license"] == PROJECT["license"]
