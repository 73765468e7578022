"""Every kind of private text is cut wherever it stands, no name is; the whole table is `benchmarks/canaries.py`."""

from __future__ import annotations

import gzip
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from benchmarks.canaries import PARTS, cases, eaten, look
from mio2trace.batch.work import read_journals
from mio2trace.model import Sort
from mio2trace.privacy import KINDS, Cleaner
from mio2trace.privacy.rules import RULES, Rules
from mio2trace.readers import READERS
from mio2trace.readers import bundled as archives
from mio2trace.source import HEAD
from tests.canaries import BY_NAME, CANARIES, IN_MESSAGES, KEPT, LAYERS, NAMES, leaks
from tests.conftest import ROOT
from tests.planted import FORMATS, tensorflow

SORTS: tuple[Sort, ...] = ("layer", "name", "text")
AROUND = (("", ""), ("conv1 ", " x"), ('"', '"'), ("[", "]"), ("<", ">"), ("(", ")"), (": ", ", y"), ("a=", "; b"))
SOME = cases()[: len(FORMATS) * len(CANARIES) // PARTS]

DRAWN = {
    "PyTorch": {"kernel", "operator", "frame", "annotation", "api"},
    "ROCm r": {"kernel"},
    "ROCm RPD": {"kernel"},
    "ROCm v1": {"kernel"},
    "ROCm v3 kernels": {"kernel"},
    "ROCm v3 object": {"kernel"},
    "XSpace": {"kernel"},
    "MIOpen messages": {"kernel", "operation", "log"},
    "MIOpen parameters": {"kernel", "operation"},
    "MIOpen headers": {"kernel", "operation"},
    "RunMetadata": {"operator", "annotation"},
    "StepStats": {"operator", "annotation"},
    "timeline": {"operator", "annotation"},
    "ProfileProto": {"operator", "annotation"},
}
"""What a trace of the format shows at least, whatever was cut."""


@pytest.mark.parametrize("name", FORMATS)
def test_no_canary_reaches_any_output(name: str) -> None:
    """Each kind in one format, some kinds in each: in all fields, outputs and tables."""
    kinds = [kind for other, kind in SOME if other == name]
    assert kinds
    for kind in kinds:
        seen = look(name, kind)
        assert {"trace json", "trace native", "summary", "tables", "snapshot"} <= seen.looked
        assert not seen.leaked, kind
        assert next((drawn for words, drawn in DRAWN.items() if words in name), set()) <= seen.drawn, kind


def test_each_part_of_the_cases_has_all_formats_and_kinds() -> None:
    assert {name for name, _ in SOME} == set(FORMATS)
    assert {kind for _, kind in SOME} == set(CANARIES)


@pytest.mark.parametrize("kind", CANARIES)
def test_a_canary_is_cut_in_names_and_texts_whatever_stands_around_it(kind: str) -> None:
    assert leaks(CANARIES[kind])
    for sort, (before, after) in itertools.product(SORTS, AROUND):
        cleaned = Cleaner().text(f"{before}{CANARIES[kind]}{after}", sort)
        assert not leaks(cleaned), (sort, before)
        assert Cleaner().text(cleaned, sort) == cleaned, "cleaning again changes nothing"


@pytest.mark.parametrize("kind", IN_MESSAGES)
def test_a_name_beside_an_at_sign_is_cut_in_messages_alone(kind: str) -> None:
    text = f"by {IN_MESSAGES[kind]} x"
    assert not leaks(Cleaner().text(text))
    assert Cleaner().text(text, "name") == text


@pytest.mark.parametrize("text", [*NAMES, *KEPT.values()])
def test_what_names_something_stays(text: str) -> None:
    for sort, (before, after) in itertools.product(SORTS, AROUND[:4]):
        assert Cleaner().text(f"{before}{text}{after}", sort) == f"{before}{text}{after}", sort


@pytest.mark.parametrize("text", LAYERS)
def test_names_of_layers_may_begin_with_a_slash(text: str) -> None:
    assert Cleaner().text(text, "layer") == text


def test_no_name_is_eaten_on_its_way_into_a_trace() -> None:
    fields = eaten()
    assert {field.split(":")[0] for field, _, _ in fields} > {"dv/dt JSON", "Caffe log", "MIOpen log", "TensorFlow"}
    for field, count, lost in fields:
        assert count > 10
        assert not lost, field


def test_every_rule_is_of_a_kind_that_can_be_kept_and_has_a_canary() -> None:
    texts = [*CANARIES.values(), *IN_MESSAGES.values()]
    for rule in RULES:
        assert rule.kinds <= set(KINDS)
        assert any(rule.pattern.search(text) for text in texts), rule.form


@pytest.mark.parametrize("kind", CANARIES)
def test_the_marks_and_shapes_of_a_rule_let_its_canary_through(kind: str) -> None:
    """What spares a text the expressions must not hide anything from them."""
    blind = Rules(msgspec.structs.replace(rule, marks=("",), shapes=("",)) for rule in RULES)
    assert Rules(RULES).without_private(CANARIES[kind]) == blind.without_private(CANARIES[kind])


def test_every_reader_has_canaries() -> None:
    """A reader without a format in `tests.planted` fails. A printed view is only an input of `tfprof`."""
    known = {
        reader.NAME
        for data in (tensorflow.view("canary"), *(data for make in FORMATS.values() for data in make("canary")))
        for reader in READERS
        if reader.sniff((gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)[:HEAD])
    }
    assert {reader.NAME for reader in READERS} - known == {archives.NAME}, "an archive holds the files of others"


# -- Nothing private is in a dataset: in no table, name of a file, journal; whatever runs are called, and fail of.


pytest.importorskip("duckdb")
pytest.importorskip("nanoarrow")
BROKEN = {
    "no JSON": '[{{"call": "{0}"}}, {{"{0}": ',
    "keys": '{{"{0}": {{"{0}": "{0}"}}}}',
    "text": "{0}\n{0}: {0}\n",
    "database": "SQLite format 3\0{0}",
    "table": '"{0}","{0}"\n"{0}","{0}"\n',
    "nothing": "",
}


def environment_of_canaries() -> dict[str, str]:
    """This process's, of a person and a machine that must not be told of."""
    own = {"HOME": "/home/canary", "USER": "canary", "HOSTNAME": "canary", "SECRET_TOKEN": "canary"}
    return {**os.environ, "PYTHONPATH": str(ROOT / "timeline"), **own}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run of every format, each with other canaries in all fields, in a folder that is called like one; and of
    what is no run, with canaries."""
    place = tmp_path_factory.mktemp("canaryhost.lan")
    kinds = itertools.cycle([*CANARIES.values(), BY_NAME])
    names = itertools.cycle(
        text for kind, text in CANARIES.items() if "/" not in text and len(text) < 90 and "pointer" not in kind
    )
    for number, (name, files) in enumerate(FORMATS.items()):
        canary = next(kinds)
        folder = place / "runs" / f"{number} {next(names)}" / "home" / "canaryuser"
        folder.mkdir(parents=True)
        for at, data in enumerate(files(canary)):
            (folder / f"{at}.{'log' if 'log' in name else 'prof.json'}").write_bytes(data)
    for number, text in enumerate(BROKEN.values()):
        folder = place / "runs" / f"bad {number}"
        folder.mkdir(parents=True)
        (folder / f"{next(names)}.json").write_text(text.format(next(kinds)))
    command = [sys.executable, "-m", "mio2trace", "batch", str(place / "runs"), "-o", str(place / "ds")]
    done = subprocess.run(command, env=environment_of_canaries(), capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return place / "ds"


def test_no_canary_is_in_the_journal_or_a_files_name(dataset: Path) -> None:
    journal = (dataset / "_runs.jsonl").read_text()
    entries = read_journals(dataset).values()
    failed = [entry for entry in entries if entry.error]
    assert len(failed) >= 4
    assert len(entries) - len(failed) > 15
    assert not leaks(journal)
    assert not leaks("\n".join(str(path.relative_to(dataset)) for path in dataset.rglob("*")))


def test_no_canary_is_in_a_table(dataset: Path) -> None:
    texts = 0
    for name, text in _contents(dataset):
        assert not leaks(text), name
        texts += 1
    assert texts > 200


def _contents(dataset: Path) -> Iterator[tuple[str, str]]:
    """All rows of every file, what is packed in them too, and what the file says of itself."""
    import duckdb

    with duckdb.connect() as database:
        for path in sorted(dataset.glob("*/*.parquet")):
            rows = database.execute("select * from read_parquet(?)", [str(path)]).fetchall()
            cells = [msgspec.msgpack.decode(cell) if isinstance(cell, bytes) else cell for row in rows for cell in row]
            said = database.execute("select key, value from parquet_kv_metadata(?)", [str(path)]).fetchall()
            yield f"{path.parent.name}/{path.name}", f"{cells} {said}"
