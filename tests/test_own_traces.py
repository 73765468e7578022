"""A written trace ends with its number of slices and a checksum: what was changed since is read equal, or said."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from mio2trace import source, writers
from tests.commands import invoked
from tests.conftest import ROOT
from tests.fuzz import own_traces
from tests.own_traces import resealed

SUM = "select count(*), sum(dur) from slice"


def query(path: Path, *more: str) -> tuple[int, str, str]:
    done = invoked("query", path, SUM, *more)
    return done.exit_code, done.stdout, done.stderr


def put(tmp_path: Path, form: str, data: bytes) -> Path:
    path = tmp_path / f"out.{form}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("form", own_traces.FORMS)
def test_one_bit_or_a_cut_is_said(tmp_path: Path, form: str) -> None:
    """One line, exit code 1; --damaged reads what is left, with a note."""
    data = own_traces.written()[form]
    code, _, said = query(put(tmp_path, form, data))
    assert (code, said) == (0, "")
    bit = bytearray(data)
    bit[len(bit) * 3 // 4] ^= 1
    for changed in (bytes(bit), data[: len(data) * 2 // 3]):
        code, out, said = query(put(tmp_path, form, changed))
        assert (code, out) == (1, "")
        assert said.count("\n") == 1
        assert "not as mio2trace wrote it: " in said
        assert "--damaged" in said
        code, out, said = query(put(tmp_path, form, changed), "--damaged")
        assert code == 0
        assert "problem: " in said
        assert out.startswith("count(*),sum(dur)\n")


@pytest.mark.thorough
def test_changed_traces_are_read_equal_or_said() -> None:
    """Bytes, cuts, pieces moved; `benchmarks/fuzz_own.py` runs many more."""
    verdicts = Counter(own_traces.judge(data, form) for form, data in map(own_traces.changed, _seeds("changed", 1500)))
    assert set(verdicts) <= {"equal", "refused", "said"}
    assert verdicts["refused"] > 1000


@pytest.mark.parametrize("form", own_traces.FORMS)
def test_a_cut_at_every_place_is_said(form: str) -> None:
    data = own_traces.written()[form]
    for length in range(0, len(data), 1 + len(data) // 500):
        assert own_traces.judge(data[:length], form) == "refused", length


@pytest.mark.thorough
def test_a_trace_of_a_stranger_is_read_or_refused() -> None:
    """Whatever is in it, its checksum is right."""
    verdicts = Counter(
        own_traces.judge_hostile(data, form) for form, data in map(own_traces.hostile, _seeds("hostile", 400))
    )
    assert set(verdicts) == {"read", "refused"}


def _seeds(name: str, count: int) -> list[str]:
    return [f"{name}/{number}" for number in range(count)]


def test_what_another_program_has_laid_out_again_is_read_with_a_note(tmp_path: Path) -> None:
    """Its number of slices is checked; without the end nothing is."""
    data = own_traces.written()["json"]
    _, whole, _ = query(put(tmp_path, "json", data))
    trace = json.loads(data)
    for layout in (None, 1):
        code, out, said = query(put(tmp_path, "json", json.dumps(trace, indent=layout).encode()))
        assert (code, out) == (0, whole)
        assert said.startswith(f"note: {writers.REWRITTEN}")
    fewer = [event for event in trace["traceEvents"] if event.get("cat") != "kernel"]
    code, _, said = query(put(tmp_path, "json", json.dumps({**trace, "traceEvents": fewer}).encode()))
    assert code == 1
    assert " slices" in said
    del trace["mio2trace_end"]
    code, out, said = query(put(tmp_path, "json", json.dumps(trace).encode()))
    assert (code, out) == (0, whole)
    assert said.startswith(f"note: {writers.NO_SUM}")


@pytest.mark.parametrize("form", ["json", "pftrace"])
def test_a_trace_of_a_version_without_checksums_is_read_with_a_note(tmp_path: Path, form: str) -> None:
    """A cut in it is still seen: the JSON is not closed, slices do not end. test_from_0_2.py compares the numbers."""
    old = gzip.decompress((ROOT / "tests" / "from_0_2" / f"trace.{form}.gz").read_bytes())
    code, _, said = query(put(tmp_path, form, old))
    assert code == 0
    assert said.startswith(f"note: {writers.NO_SUM}")
    assert query(put(tmp_path, form, old[: len(old) // 2]))[0] == 1


def test_the_checksum_is_that_of_all_bytes_before() -> None:
    """Computed with zlib alone: what is sealed again is what was written."""
    for form in ("json", "pftrace"):
        data = own_traces.written()[form]
        assert resealed(data) == data
        assert resealed(data.replace(b"kernel", b"kernal", 1)) != data.replace(b"kernel", b"kernal", 1)


def test_a_trace_that_holds_too_much_is_refused_without_an_option_that_would_not_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "t.json.gz"
    assert invoked(ROOT / "traces" / "lenet-rocpd", "-o", trace, "-q").exit_code == 0
    for name, limit in ("BLOCK", 10_000), ("FREE_EXPANSION", 90_000), ("MAX_EXPANSION", 1):
        monkeypatch.setattr(source, name, limit)
    done = invoked("query", trace, "slowest kernels")
    assert done.exit_code == 1
    assert "t.json.gz: once decompressed, more than" in done.stderr
    assert "--max-input" not in done.stderr
