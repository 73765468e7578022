"""Nothing private is in a dataset: in no table, name of a file, journal; whatever runs are called, and fail of."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mio2trace.batch.work import read_journals
from tests.canaries import BY_NAME, CANARIES, leaks
from tests.conftest import ROOT
from tests.planted import FORMATS

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
