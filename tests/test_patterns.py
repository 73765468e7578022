"""Every regular expression of the package takes time that grows with its input only, whatever the input holds."""

from __future__ import annotations

import ast
import re

import pytest

from tests.fuzz import backtracking

USES = backtracking.uses()

MADE_WHILE_RUNNING = {
    ("mio2trace.findings.gpus", "known"),  # words only
    ("mio2trace.kernels.rows", "row"),  # a table's; found where the table is
    ("mio2trace.kernels.sources", "_definition"),  # words only
    ("mio2trace.privacy.cleaner", "text"),  # words only
    ("mio2trace.privacy.rules", "_rule"),  # a table's; found where the table is
    ("mio2trace.readers.miopen.timed", "add"),  # tried below
    # From the command line
    ("mio2trace.commands.tfprof", "_check_expression"),
    ("mio2trace.reports.tfprof", "view_series"),
    ("mio2trace.reports.tfprof_scope", "_matcher"),
}
"""(module, function) of the expressions that are not compiled where their module begins, and why that is well."""


def test_every_expression_is_compiled_where_its_module_begins() -> None:
    """So that none is forgotten below."""
    made = set()
    for module in backtracking.modules():
        for function in ast.walk(backtracking.tree_of(module)):
            if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
                continue
            for call in ast.walk(function):
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and isinstance(call.func.value, ast.Name)
                    and call.func.value.id == "re"
                    and call.func.attr != "escape"
                ):
                    made.add((module.__name__, getattr(function, "name", "lambda")))
    assert made == MADE_WHILE_RUNNING


@pytest.mark.parametrize(
    "module", sorted({".".join(use.place.split(".")[:3]) for use in USES}), ids=lambda name: name.partition(".")[2]
)
def test_no_expression_backtracks_over_its_own_parts(module: str) -> None:
    """Each part repeated to 20,000 and 40,000 characters, in the ways in which the package uses the expression."""
    found = [backtracking.slow(use) for use in USES if ".".join(use.place.split(".")[:3]) == module]
    assert not list(filter(None, found))


def test_the_expressions_of_prefixes_with_times_do_not_backtrack() -> None:
    """They are made from the prefixes of a log."""
    from mio2trace.readers.miopen.timed import TimedPrefixes

    prefixes = TimedPrefixes()
    for head in (b"MIOpen(HIP)", b"1234 MIOpen"):
        prefixes.add(head)
    assert prefixes.pattern is not None
    assert backtracking.slow(backtracking.Use("timed", prefixes.pattern, frozenset({"finditer"}))) is None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"\s+x", "search"),
        (r"\s*a?\s*b", "match"),
        (r"(\w+) = 1", "findall"),
        (r"a.*?b", "search"),
        (r"(a|a)*b", "match"),
    ],
)
def test_expressions_that_backtrack_are_found(pattern: str, method: str) -> None:
    """What the tests above look for."""
    assert backtracking.slow(backtracking.Use("here", re.compile(pattern), frozenset({method}))) is not None


@pytest.mark.parametrize(
    ("pattern", "method"), [(r"(?<!\s)\s++x", "search"), (r"\w+", "findall"), (r"a[^b]*b", "match")]
)
def test_expressions_that_do_not_backtrack_are_left_alone(pattern: str, method: str) -> None:
    """However often a part is repeated."""
    assert backtracking.slow(backtracking.Use("here", re.compile(pattern), frozenset({method}))) is None
