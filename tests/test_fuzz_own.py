"""A CI-size run of `benchmarks/fuzz_own.py`, and that every reader of the package is fed by a fuzzer."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz import cases, covered, law, own

CASES = {"trace": 100, "hostile trace": 70, "base": 70, "sums": 50, "databases": 12}


@pytest.mark.parametrize("kind", own.KINDS)
def test_own_formats_keep_the_law(kind: str) -> None:
    """Each case read, refused in one line, or said; both are tried."""
    verdicts = Counter(own.judged(7, number, (kind,))[1] for number in range(CASES.get(kind, 25)))
    assert sum(verdicts.values()) == CASES.get(kind, 25)
    assert len(verdicts) > 1 or kind in ("trace", "journal", "folder")


def test_every_reader_is_fed() -> None:
    """The table is the package's: a reader without an entry fails, and an entry without a reader."""
    assert sorted(covered.reading()) == sorted(covered.READERS)
    kinds = {*own.KINDS, *(generator(random.Random(0)).kind for generator in cases.GENERATORS)}
    for reader, fed in covered.READERS.items():
        assert bool(fed.by) != bool(fed.no_file), reader
        assert set(fed.by) <= kinds, reader
    assert set(own.KINDS) <= {kind for fed in covered.READERS.values() for kind in fed.by}


def test_a_new_reader_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it calls: a decoder, a file that is opened, SQL over a file."""
    monkeypatch.setattr(covered, "PACKAGE", tmp_path)
    for number, call in enumerate(
        (
            "json.loads(x)",
            "open(x)",
            "path.read_bytes()",
            "msgspec.json.decode(x)",
            "execute('SELECT 1 FROM read_parquet(x)')",
        )
    ):
        (tmp_path / f"new_{number}.py").write_text(f"def read(x):\n    return {call}\n")
    (tmp_path / "other.py").write_text("def count(x):\n    return len(x)\n")
    assert list(covered.reading()) == [f"new_{number}.py" for number in range(5)]


def test_a_lost_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The independent sum is another than that of a program that loses time."""
    monkeypatch.setattr(own, "_rocpd_sum", lambda data: 1)
    monkeypatch.setattr(own, "_dvdt", own._rocpd)
    monkeypatch.setattr(own, "_kineto", own._rocpd)
    assert _violations(range(60))


def _violations(numbers: range) -> list[str]:
    found = []
    for number in numbers:
        try:
            own.sums(random.Random(f"lost {number}"))
        except law.ViolationError as error:
            found.append(str(error))
    assert all("and no problem noted" in one for one in found)
    return found
