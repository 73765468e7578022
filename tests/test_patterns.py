"""Every regular expression of the package takes time that grows with its input only, whatever the input holds."""

from __future__ import annotations

import ast
import functools
import random
import re
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from mio2trace.kernels.names import PATTERNS
from mio2trace.patterns import Late, late
from tests.fuzz import backtracking

USES = functools.cache(backtracking.uses)
PARTS = 16

MADE_WHILE_RUNNING = {
    ("mio2trace.findings.subject", "_as_words"),  # words only
    ("mio2trace.kernels.facts", "row"),  # a table's; found where the table is
    ("mio2trace.kernels.facts", "_definition"),  # words only
    ("mio2trace.privacy", "text"),  # words only
    ("mio2trace.privacy.rules", "_rule"),  # a table's; found where the table is
    ("mio2trace.queries", "what_there_is"),  # the name of a table alone
    ("mio2trace.queries", "ask"),  # the same
    ("mio2trace.readers.miopen", "add"),  # tried below
    ("mio2trace.patterns", "compiled"),  # found where they stand
    # From the command line
    ("mio2trace.commands.tfprof", "_check_expression"),
    ("mio2trace.reports.tfprof", "view_series"),
    ("mio2trace.reports.tfprof", "_matcher"),
}
"""(module, function) of the expressions that are not compiled where their module begins, and why that is well."""


def test_every_expression_is_compiled_where_its_module_begins() -> None:
    """So that none is forgotten below."""
    made = set()
    for module in backtracking.modules():
        for function in ast.walk(backtracking.tree_of(module)):
            if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
                continue
            inside = function.body if isinstance(function, ast.FunctionDef) else [function.body]  # no decorators
            for call in (part for statement in inside for part in ast.walk(statement)):
                if isinstance(call, ast.Call) and _makes_an_expression(call.func):
                    made.add((module.__name__, getattr(function, "name", "lambda")))
    assert made == MADE_WHILE_RUNNING


def _makes_an_expression(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "late"
    of_re = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re"
    return of_re and isinstance(function, ast.Attribute) and function.attr != "escape"


def _repeats_of_groups(parsed: Any) -> list[str]:
    """The possessive repeats in a parsed expression that repeat more than one character, a class or a sign."""
    found = []
    for operation, of in parsed:
        if str(operation) == "POSSESSIVE_REPEAT" and (
            len(of[2]) != 1 or str(of[2][0][0]) not in ("LITERAL", "NOT_LITERAL", "IN", "ANY", "CATEGORY")
        ):
            found.append(str(of[2]))
        for part in of if isinstance(of, (list, tuple)) else [of]:
            parts = part if isinstance(part, list) else [part]
            found += [one for each in parts if isinstance(each, _parser.SubPattern) for one in _repeats_of_groups(each)]
    return found


def test_no_group_is_repeated_possessively() -> None:
    """Python before 3.11.5 matches these wrongly (gh-106052), and private text stayed in. Write ``(?>(?:...)*)``."""
    wrong = {}
    for use in USES():
        flags = 0 if isinstance(use.pattern.pattern, bytes) else use.pattern.flags & ~re.UNICODE
        if found := _repeats_of_groups(_parser.parse(use.pattern.pattern, flags)):
            wrong[use.place] = found
    assert not wrong


@pytest.mark.parametrize("pattern", [r"(?:ab)++", r"(?:a|(?:bc){2,}+)", r"x(?:[ab]c*)?+y", r"(?=(?:ab)*+)"])
def test_groups_that_are_repeated_possessively_are_found(pattern: str) -> None:
    """What the test above looks for; signs are matched by all versions."""
    assert _repeats_of_groups(_parser.parse(pattern))
    assert not _repeats_of_groups(_parser.parse(r"a++[ab]*+\w{2,}+.?+(?>(?:ab)*)"))


@pytest.mark.parametrize("part", range(PARTS))
def test_no_expression_backtracks_over_its_own_parts(part: int) -> None:
    """Each part repeated to 10,000 and 20,000 characters, in the ways in which the package uses the expression."""
    found = [backtracking.slow(use) for use in USES()[part::PARTS]]
    assert not list(filter(None, found))


def test_the_expressions_of_prefixes_with_times_do_not_backtrack() -> None:
    """They are made from the prefixes of a log."""
    from mio2trace.readers.miopen import TimedPrefixes

    prefixes = TimedPrefixes()
    for head in (b"MIOpen(HIP)", b"1234 MIOpen"):
        prefixes.add(head)
    assert prefixes.pattern is not None
    assert backtracking.slow(backtracking.Use("timed", prefixes.pattern, frozenset({"finditer"}))) is None


@pytest.mark.parametrize(
    ("pattern", "method", "is_slow"),
    [
        (r"\s+x", "search", True),
        (r"\s*a?\s*b", "match", True),
        (r"(\w+) = 1", "findall", True),
        (r"a.*?b", "search", True),
        (r"(a|a)*b", "match", True),
        (r"(?<!\s)\s++x", "search", False),
        (r"\w+", "findall", False),
        (r"a[^b]*b", "match", False),
    ],
)
def test_expressions_that_backtrack_are_found(pattern: str, method: str, is_slow: bool) -> None:
    """What the tests above look for, and nothing else, however often a part is repeated."""
    found = backtracking.slow(backtracking.Use("here", re.compile(pattern), frozenset({method})))
    assert (found is not None) is is_slow


def test_a_late_expression_is_used_as_a_compiled_one() -> None:
    """It has the attributes of the expression, which is made when the first of them is asked for."""
    expression: Any = late(r"(\w+) = ([0-9]+)", re.IGNORECASE)
    compiled = re.compile(r"(\w+) = ([0-9]+)", re.IGNORECASE)
    assert isinstance(expression, Late)
    assert "search" not in vars(expression)
    assert expression.pattern == compiled.pattern
    assert "search" not in vars(expression)
    assert expression.findall("a = 1, b = 22") == compiled.findall("a = 1, b = 22")
    assert (expression.groups, expression.flags) == (compiled.groups, compiled.flags)
    assert expression.search == expression.compiled.search


def test_a_kernel_name_that_fits_a_row_begins_as_the_row_says() -> None:
    """Strings made of each row's expression: none of them is passed over by its beginning."""
    rng = random.Random(1)
    fitting = 0
    for begins, pattern, _ in PATTERNS:
        for _ in range(20):
            text = backtracking.text_of(list(_parser.parse(pattern.pattern)), rng)
            if pattern.match(text):
                fitting += 1
                assert text.startswith(begins), pattern.pattern
    assert fitting > 15 * len(PATTERNS)
