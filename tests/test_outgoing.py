"""What leaves the program: nothing of a file, or of a file's name, steers or breaks where it is shown."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import urllib.parse
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mio2trace import cli
from mio2trace.commands.serve import Server
from mio2trace.outgoing import csv_text, json_text, markdown_text, shortened, visible
from mio2trace.reports import FORMS, Cell, Form, Table, print_table
from mio2trace.trace import Slice
from tests import rocm_made
from tests.commands import invoked
from tests.planted import opencl, tensorflow

HOSTILE = {
    "a formula": "=cmd|'/c calc'!A1",
    "an addition": "+1+1",
    "a mention": "@SUM(A1)",
    "a subtraction": "-2+3",
    "a tab": "\t=1+1",
    "a carriage return": "\r=1+1",
    "a line": "x\ny",
    "a colour": "\x1b[31mred\x1b[0m",
    "a title": "\x1b]0;x\x07",
    "another introducer": "\x9b31m",
    "another direction": "a\u202ecba\u202c\u2066",
    "a separator": "a\u2028b\u2029c\x85d",
    "what is not seen": "a\u200bb\ufeffc\u00add\U000e0041e",
    "a table's bar": "a|b\\|c",
    "markup": "*a* _b_ `c` [d](javascript:x) ![e](f)",
    "HTML": "<script>alert(1)</script>&amp;<img src=x onerror=y>",
    "a null": "a\x00b",
    "SQL": "'; drop table slice; --",
}
FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,4})?")


@given(st.text())
@example("".join(HOSTILE.values()))
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    """What is seen stays, and what is not is written out."""
    for rule in (visible, csv_text, markdown_text):
        assert rule(text).isprintable()
    assert json_text(json.dumps(text, ensure_ascii=False)).isprintable()
    assert visible(text) == "".join(char if char.isprintable() else visible(char) for char in text)
    assert shortened(text, 20) == text if len(text) <= 20 else len(shortened(text, 20)) <= 20


@given(st.text() | st.from_regex(FORMULA))
@example("-1.5")
@example("\u00a0=1")
def test_no_cell_of_csv_is_a_formula_and_numbers_stay(text: str) -> None:
    cell = csv_text(text)
    assert NUMBER.fullmatch(cell) or not FORMULA.match(cell)
    assert cell == text or not NUMBER.fullmatch(text)
    assert cell in (visible(text), "'" + visible(text))


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.floats(allow_nan=False)), st.sampled_from([None, 2]))
@example({"a": "\u202e\x7f\n\u2028 \x1b"}, 2)
def test_json_is_the_same_json(cells: dict[str, object], indent: int | None) -> None:
    """Only its spelling changes, and the line ends of an indent stay."""
    text = json.dumps(cells, indent=indent, ensure_ascii=False)
    assert json.loads(json_text(text)) == cells
    assert json_text(text).count("\n") == text.count("\n")


@given(st.text())
@example("a|b\\|c <b> &lt; `x` https://x www.x __init__ a_b")
def test_no_markup_of_a_cell_is_taken_for_the_tables(text: str) -> None:
    """Each sign that Markdown or HTML would take stands behind a backslash or is an entity."""
    cell = markdown_text(text)
    bare = re.sub(r"\\[\\`*\[\]|~$_./]|&(?:lt|gt|amp);|(?<=[@#-])<!-- -->", "", cell)
    assert not re.search(
        r"[\\`*\[\]<>|~$&]|\b_|_\b|://|(?i:www)\.", re.sub(r"(?<=[0-9A-Za-z])_(?=[0-9A-Za-z])", "", bare)
    )


def test_nobody_is_told_of_a_name_in_a_comment() -> None:
    """GitHub looks for them in the text that is shown, so something that is not shown stands in between."""
    for name, cell in (
        ("@octocat", "@<!-- -->octocat"), ("@a/b c", "@<!-- -->a/b c"), ("a/b#12", "a/b#<!-- -->12"),
        ("(path) #2", "(path) #<!-- -->2"), ("gh-7", "gh-<!-- -->7"), ("high-5", "high-5"), ("@", "@"), ("# x", "# x"),
    ):  # fmt: skip
        assert markdown_text(name) == cell


def test_an_ordinary_name_stays_as_it_is() -> None:
    for name in ("conv2_1/3x3_reduce", "MIOpenConvUni", "batch_norm+relu", "Conv fwd 2x6x9x8 -> 2x10x5x6 k3x3", "1.5"):
        assert visible(name) == csv_text(name) == name
        assert markdown_text(name) == name.replace(">", "&gt;")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", HOSTILE)
def test_a_table_has_its_rows_whatever_is_in_them(what: str, form: Form) -> None:
    """Cells, lists, mappings and the names of columns, too: a query's are the asker's."""
    bad = HOSTILE[what]
    row: dict[str, Cell] = {bad: bad, "list": (bad, bad), "counts": {bad: 1}, "number": -1.5, "flat": -7}
    text = "".join(print_table(Table(columns=tuple(row), rows=[row, row]), form))
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.count("\n") == {"json": 4, "jsonl": 2, "markdown": 4}.get(form, 3)
    if form == "csv":
        header, first, second = csv.reader(io.StringIO(text))
        assert first == second
        assert first[3:] == ["-1.5", "-7"]
        assert not any(map(FORMULA.match, (*header, *first[:3])))
    elif form.startswith("json"):
        found = json.loads(text.splitlines()[0] if form == "jsonl" else text)
        assert (found if form == "jsonl" else found[0]) == row | {"list": [bad, bad]}
    elif form == "markdown":
        assert {len(re.findall(r"(?<!\\)\|", re.sub(r"\\\\", "", line))) for line in text.splitlines()} == {6}
        assert "<" not in text.replace("<!-- -->", "")


MAKE = opencl.FORMATS | tensorflow.FORMATS | {"view": lambda text: [tensorflow.view(text)]}
COMMANDS = {
    "dv/dt JSON": ("kernels", "inspect"),
    "log and dv/dt JSON": ("kernels --by layer", "layers", "inspect"),
    "log of everything": ("ops", "ops --coverage", "driver", "kernels", "layers", "inspect"),
    "CK record": ("kernels", "layers", "inspect"),
    "ProfileProto": ("tfprof --show .*", "tfprof --text", "inspect"),
    "RunMetadata": ("tfprof --show .*", "kernels", "inspect"),
    "StepStats text": ("tfprof --show .*", "inspect"),
    "timeline JSON": ("tfprof --show .*", "inspect"),
    "view": ("tfprof --show .*", "inspect"),
}


PAIRS = [(name, what) for at, name in enumerate(COMMANDS) for to, what in enumerate(HOSTILE) if (at + to) % 3 == 0]
"""Each format with a third of the texts; a table has all of them, above."""


@pytest.mark.parametrize(("name", "what"), PAIRS)
def test_no_command_shows_what_steers(name: str, what: str, tmp_path: Path) -> None:
    """Hostile text in every field of every format: each command, in each form, and what is said of it."""
    paths = []
    for place, data in enumerate(MAKE[name](HOSTILE[what])):
        paths.append(str(tmp_path / f"in{place}"))
        Path(paths[-1]).write_bytes(data)
    shown = 0
    for command in COMMANDS[name]:
        forms: tuple[tuple[str, ...], ...] = tuple(("--format", form) for form in ("csv", "table", "markdown", "json"))
        if command.split()[0] in ("inspect", "driver") or "--text" in command:
            forms = ((),)
        for form in forms:
            done = invoked(*command.split(), *form, *paths)
            shown += done.exit_code == 0
            for line in (done.stdout + "\n" + done.stderr).split("\n"):
                assert line.isprintable(), (command, form)
    done = invoked("convert", *paths, "-o", tmp_path / "out.json")
    assert all(line.isprintable() for line in done.stderr.split("\n"))
    assert shown or what in ("a null", "a line"), "these make some formats none"


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\nb", "\u202eabc", "$(x)", "-o", "a\udc80b", "=1", "x:y", "\x9b"])
@pytest.mark.parametrize(
    "command", ["ops", "driver", "kernels", "layers", "tfprof", "inspect", "view", "query", "convert"]
)
def test_a_file_of_any_name_that_cannot_be_used_is_one_plain_line(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program's own front, with the name as it is."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(b"nothing that is known\n")
    more = {"convert": ["-o", "out.json"], "query": ["--engine", "/bin/false"]}.get(command, [])
    last = ["select 1"] if command == "query" else []
    monkeypatch.setattr(sys, "argv", ["mio2trace", command, *more, "--", name, *last])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = capsys.readouterr()
    assert stop.value.code == 1
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err[:-1].isprintable()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("argv", [
    ["ops", "--\x1b[31mx"], ["convert", "x", "-o", "a.json", "--top", "\x1b[2J"], ["ops", "x", "--format", "a\nb"],
    ["\x1b]0;x\x07"], ["convert", "x", "-o", "\x1b[31m.exe"], ["query", "x", "\u202eabc"], ["driver", "--form", "\x9b"],
])  # fmt: skip
def test_a_wrong_call_is_told_without_what_steers(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mio2trace", *argv])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    err = capsys.readouterr().err
    assert stop.value.code in (1, 2)
    assert err
    assert all(line.isprintable() for line in err.split("\n"))


@pytest.mark.parametrize("name", ["a b?c#d&e=f%00.json", "\x1b[31m.json", "a\nb.json", "a\udc80.json", "é\u202e.json"])
def test_a_link_holds_nothing_of_the_file_but_its_name_percent_encoded(name: str, tmp_path: Path) -> None:
    """And numbers that the page's clock has: neither a layer's name nor a number without end."""
    (tmp_path / name).write_text("{}")
    with Server(tmp_path / name, None, keep=False, port=0) as server:
        places = (("&commands=x#\u202e", 5), ("x", 10**4000), ("x", -5))
        slices = [Slice(0, start_ns, 10, layer, "layer", {}) for layer, start_ns in places]
        links = [server.link(one) for one in (None, *slices)]
    for link in links:
        assert re.fullmatch(r"[!-~]+", link)
        assert len(link) < 2000
        wanted = dict(urllib.parse.parse_qsl(link.partition("?")[2], strict_parsing=True))
        assert set(wanted) - {"visStart", "visEnd", "ts", "dur"} == {"url", "startupCommands"}
        place = urllib.parse.urlsplit(wanted["url"]).path
        assert urllib.parse.unquote_to_bytes(place).decode("utf-8", "surrogateescape") == "/" + name
    assert ["ts=" in link for link in links] == [False, True, False, False]


@pytest.mark.parametrize(
    "text", ["\x1b[31mred", "\x1b]0;x\x07", "\u202eabc", "\u2028x", "\x9b1m", "</title><script>x()"]
)
def test_what_pictures_say_is_written_out(text: str, tmp_path: Path) -> None:
    """A title of a bar is a kernel's name: whoever copies it from the page pastes it somewhere."""
    (tmp_path / "a.db").write_bytes(rocm_made.rocpd(rocm_made.run(text)))
    page = tmp_path / "page.html"
    run = str(tmp_path / "a.db")
    assert invoked("compare", run, run, "-o", page).exit_code == 0
    written = page.read_text("utf-8")
    assert text not in written
    assert [char for char in set(written) if not char.isprintable() and char not in "\n\t"] == []
