"""Timer marks in columns are the marks that went in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mio2trace.model.profile import TimerMark, TimerMarks

integers = st.integers(-(2**66), 2**66)
marks = st.lists(st.builds(TimerMark, st.integers(0, 2**40), st.integers(0, 9), st.none() | integers), max_size=9)


@given(marks, st.slices(9))
def test_marks_come_out_as_they_went_in(given_marks: list[TimerMark], places: slice) -> None:
    """One by one, all of them, and a part; times that were not told or need more than 64 bits, too."""
    columns = TimerMarks.of(given_marks)
    assert list(columns) == given_marks
    assert [columns[place] for place in range(len(columns))] == given_marks
    assert list(columns[places]) == given_marks[places]
    assert columns[places] == TimerMarks.of(given_marks[places])
    assert columns == tuple(given_marks)
    assert hash(columns) == hash(tuple(given_marks))
    assert list(columns.host_ns) == [mark.host_ns for mark in given_marks]
