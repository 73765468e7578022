"""Compressed output: what `gzip` reads, the same bytes every time, nothing of the machine in it."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mio2trace
from mio2trace.writers import WRITERS
from mio2trace.writers.ending import _HEAD, Packed

STRATEGIES = [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED]
ALEXNET = Path(__file__).parent.parent / "traces" / "alexnet-b1-train"


def packed(blocks: list[bytes], strategy: int) -> bytes:
    file = io.BytesIO()
    with Packed(file, strategy) as target:
        assert [target.write(block) for block in blocks] == [len(block) for block in blocks]
    return file.getvalue()


@given(st.lists(st.binary(max_size=300), max_size=20), st.sampled_from(STRATEGIES))
def test_it_is_gzip(blocks: list[bytes], strategy: int) -> None:
    """Head, sum and size are right; nothing tells when or where it was written."""
    found = packed(blocks, strategy)
    assert gzip.decompress(found) == b"".join(blocks)
    assert found == packed(blocks, strategy)
    assert found[:10] == _HEAD == bytes([31, 139, 8, 0, 0, 0, 0, 0, 0, 255])


def test_what_failed_has_no_end() -> None:
    """A file that was not written to its end does not look whole."""
    file = io.BytesIO()

    def failing() -> None:
        with Packed(file) as target:
            target.write(b"x" * 1000)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    with pytest.raises(EOFError):
        gzip.decompress(file.getvalue())


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.NAME)
def test_each_form_is_packed_as_it_packs_best(writer: object) -> None:
    """Its strategy is the better one on a real run."""
    assert writer in WRITERS
    form = WRITERS[0] if writer is WRITERS[0] else WRITERS[1]
    trace = mio2trace.convert(ALEXNET / "run.log", ALEXNET / "prof.json.gz", host_calls="none").trace
    file = io.BytesIO()
    form.write(trace, file, to_pack=True)
    sizes = {strategy: len(packed([file.getvalue()], strategy)) for strategy in STRATEGIES}
    assert min(sizes, key=lambda strategy: sizes[strategy]) == form.GZIP_STRATEGY
