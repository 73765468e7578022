"""Printed times of layers as columns, and stamps that are read many at a time, equal what each gives by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mio2trace.align.clocks.axis import LogClock, local_ns, local_times
from mio2trace.model.log import LayerTime, LocalTime
from mio2trace.model.tables import NO, LayerTimes, plain
from mio2trace.notes import Notes
from mio2trace.readers.opencl import ProfileFolder

stamps = st.none() | st.builds(
    LocalTime,
    year=st.sampled_from([0, 2000, 2024]),
    month=st.integers(1, 12),
    day=st.integers(1, 28),
    ns=st.integers(0, 86_399_999_999_999),
)
layers = st.builds(
    LayerTime,
    source=st.integers(0, 1),
    line=st.integers(0, 9),
    index=st.integers(0, 3),
    layer=st.sampled_from(["conv1", "relu1"]),
    direction=st.sampled_from(["forward", "backward"]),
    printed_ns=st.integers(0, 10**16),
    stamp=stamps,
    thread=st.none() | st.integers(0, 1 << 70),
)


@given(st.lists(layers, max_size=6))
def test_columns_hold_what_records_do(records: list[LayerTime]) -> None:
    table = LayerTimes(records).changed()
    assert list(table) == records
    assert list(table.take(slice(1, None))) == records[1:]
    assert [(key.place, key.layer, key.direction) for key in table.key.each()] == [
        (one.index, one.layer, one.direction) for one in records
    ]
    assert [table.stamp(row) for row in range(len(table))] == [one.stamp for one in records]


@given(st.lists(layers, max_size=6))
def test_a_column_of_stamps_is_converted_like_each_stamp(records: list[LayerTime]) -> None:
    clock = LogClock(offset_ns=3600 * 10**9, near_ns=1_700_000_000 * 10**9, residual_ns=0, method="", host_ns=7)
    table = LayerTimes(records)
    assert plain(clock.hosts_of(table)) == [None if one.stamp is None else clock.to_host(one.stamp) for one in records]
    told = local_times(table, clock.near_ns)[table.has_stamp].tolist()
    assert told == [local_ns(one.stamp, clock.near_ns) for one in records if one.stamp is not None]


texts = st.sampled_from([
    "", "2018-02-09T10:36:48.553314", "2018-02-09T10:36:48.000000", "2018-02-09T10:36:49.000001",
    "2018-02-09T10:36:48.55 314", "2018-02-09T10:36:48.+53314", "2018-02-30T10:36:48.553314", "2018-02-09T10:36:48",
    "1970-01-01 00:00:00.553314", "2018-02-09T10:36:48.5533\u0661\u0661", "2018-02-09T10:36:48.553314999",
])  # fmt: skip


@given(st.lists(texts, max_size=6))
def test_stamps_are_read_together_like_each_by_itself(given_texts: list[str]) -> None:
    together, alone = (ProfileFolder(0, Notes(), "") for _ in range(2))
    times = [NO if (time := alone._host(text)) is None else time for text in given_texts]
    assert together._unix_ns(given_texts).tolist() == times
    assert str(together._notes) == str(alone._notes)
