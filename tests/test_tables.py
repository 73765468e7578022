"""Tables: what a person sees and what a program reads."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mio2trace.outgoing import csv_text
from mio2trace.reports.tables import FORMS, Cell, Form, Row, Table, grouped, print_table, stacked

ROWS: list[dict[str, Cell]] = [
    {"name": "a, b", "size": 3, "M": 1, "N": 2, "words": ("x", "y")},
    {"name": 'say "c"', "size": 20},
    {"name": "a, b", "size": 4, "M": 1, "N": 2},
]
TABLE = Table(columns=("name", "size", "M", "N", "words", "never"), rows=ROWS, objects={"gemm": ("M", "N")})


def text(table: Table, form: Form) -> str:
    return "".join(print_table(table, form))


def test_csv_has_one_header_every_column_and_empty_cells() -> None:
    read = list(csv.reader(io.StringIO(text(TABLE, "csv"))))
    assert read == [
        ["name", "size", "M", "N", "words", "never"],
        ["a, b", "3", "1", "2", "x; y", ""],
        ['say "c"', "20", "", "", "", ""],
        ["a, b", "4", "1", "2", "", ""],
    ]
    assert "\r" not in text(TABLE, "csv")


def test_json_leaves_out_what_is_unknown_and_nests_objects() -> None:
    rows = json.loads(text(TABLE, "json"))
    assert rows == [
        {"name": "a, b", "size": 3, "gemm": {"M": 1, "N": 2}, "words": ["x", "y"]},
        {"name": 'say "c"', "size": 20},
        {"name": "a, b", "size": 4, "gemm": {"M": 1, "N": 2}},
    ]
    assert [json.loads(line) for line in text(TABLE, "jsonl").splitlines()] == rows


def test_text_is_aligned_and_without_empty_columns() -> None:
    assert text(TABLE, "table") == (
        'name     size  M  N  words\na, b        3  1  2  x; y\nsay "c"    20\na, b        4  1  2\n'
    )


def test_markdown_escapes_its_own_sign() -> None:
    table = Table(columns=("a", "n"), rows=[{"a": "x|y", "n": 1}])
    assert text(table, "markdown") == "| a | n |\n|---|---:|\n| x\\|y | 1 |\n"


@pytest.mark.parametrize("form", FORMS)
def test_a_table_without_rows(form: Form) -> None:
    empty = Table(columns=("a", "b"), rows=[])
    expected = {"csv": "a,b\n", "json": "[]\n", "jsonl": "", "table": "a  b\n", "markdown": "| a | b |\n|---|---|\n"}
    assert text(empty, form) == expected[form]


def test_groups_are_counted_most_frequent_first_and_keep_what_is_common() -> None:
    found = grouped(TABLE, ["name"])
    assert found.columns[:2] == ("count", "name")
    assert list(found.rows) == [
        {"count": 2, "name": "a, b", "M": 1, "N": 2},
        {"count": 1, "name": 'say "c"', "size": 20},
    ]
    assert [row["count"] for row in grouped(TABLE, ["name", "size"]).rows] == [1, 1, 1]
    with pytest.raises(KeyError, match="nothing"):
        grouped(TABLE, ["nothing"])


def test_columns_can_be_chosen() -> None:
    assert text(TABLE.chosen(["size", "name"]), "csv").startswith('size,name\n3,"a, b"\n')
    with pytest.raises(KeyError, match="nothing"):
        TABLE.chosen(["nothing"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(0, 2**60), st.text(max_size=9)))))
def test_csv_and_json_give_back_every_cell(rows: list[dict[str, Cell]]) -> None:
    table = Table(columns=("a", "b", "c"), rows=rows)
    kept = [{key: cell for key, cell in row.items() if "\r" not in str(cell)} for row in rows]
    table = Table(columns=("a", "b", "c"), rows=kept)
    read = list(csv.DictReader(io.StringIO(text(table, "csv"), newline="")))
    shown = [
        {name: cell if isinstance(cell, int) else csv_text(str(cell)) for name, cell in row.items()} for row in kept
    ]
    assert read == [{name: str(row.get(name, "")) for name in "abc"} for row in shown]
    assert json.loads(text(table, "json")) == kept
    for form in FORMS:
        assert text(table, form).count("\n") >= len(kept) or not kept


def test_tables_under_each_other_have_all_their_rows_in_order() -> None:
    """By number, from the end, in slices, past the end; a table without rows between others."""
    parts: list[tuple[Row, Table]] = [
        ({"process": name}, Table(columns=("n",), rows=[{"n": at} for at in range(count)]))
        for name, count in (("a", 2), ("b", 0), ("c", 3))
    ]
    rows = stacked(parts).rows
    every = [("a", 0), ("a", 1), ("c", 0), ("c", 1), ("c", 2)]
    assert [(row["process"], row["n"]) for row in rows] == every
    assert [(rows[at]["process"], rows[at]["n"]) for at in range(-5, 5)] == every * 2
    assert [row["n"] for row in rows[1:4]] == [1, 0, 1]
    for beyond in (5, -6):
        with pytest.raises(IndexError):
            rows[beyond]
