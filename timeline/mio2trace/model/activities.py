"""The activities of a profile, as rows and as columns.

`Activities` has rows; `mio2trace.model.recorded` is filled with columns and makes its rows when somebody asks for them.
A row costs some hundreds of bytes, so whoever needs one field of all activities asks for its column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from mio2trace.model.profile import Activity, Call  # noqa: F401 - the first stands in a string

T = TypeVar("T")


class Rows(Sequence[T], Generic[T]):
    """Records, each one object however often it is asked for."""

    def __init__(self, rows: Iterable[T] = ()) -> None:
        self._rows: tuple[T, ...] | None = tuple(rows)

    @property
    def rows(self) -> tuple[T, ...]:
        assert self._rows is not None
        return self._rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        return self.rows[at]

    def __iter__(self) -> Iterator[T]:
        return iter(self.rows)

    def __reversed__(self) -> Iterator[T]:
        return reversed(self.rows)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rows):
            return self is other or self.rows == other.rows
        return self.rows == other if isinstance(other, tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rows!r})"


class Activities(Rows["Activity"]):
    """Those of a profile, in the order in which they were enqueued. A column has a value of each; it is made when it is
    asked for, so keep it where you ask often."""

    @property
    def numbers(self) -> Sequence[int]:
        return self._column("number")

    @property
    def kinds(self) -> Sequence[str]:
        return self._column("kind")

    @property
    def names(self) -> Sequence[str]:
        return self._column("name")

    @property
    def queues(self) -> Sequence[int]:
        return self._column("queue")

    @property
    def starts(self) -> Sequence[int | None]:
        return self._column("start_ns")

    @property
    def ends(self) -> Sequence[int | None]:
        return self._column("end_ns")

    @property
    def calls(self) -> Sequence[Call | None]:
        """The call that launched each."""
        return self._column("call")

    @property
    def host_starts(self) -> Sequence[int | None]:
        """When the call that launched each began."""
        return self._of_call("start_ns")

    @property
    def host_ends(self) -> Sequence[int | None]:
        """When the call that launched each returned."""
        return self._of_call("end_ns")

    @property
    def threads(self) -> Sequence[int]:
        """The thread that launched each; 0 where none is known."""
        return [0 if call is None else call.thread for call in self.calls]

    @property
    def ranges(self) -> Sequence[int | None]:
        """The place of the range that launched each, where the source states it."""
        return self._column("range")

    def distinct(self, field: str) -> set[Any]:
        """The values of a field."""
        return set(self._column(field))

    @property
    def call_names(self) -> set[str]:
        """Of the calls that launched any."""
        return {call.name for call in self.calls if call is not None}

    def _column(self, field: str) -> Sequence[Any]:
        return list(map(attrgetter(field), self.rows))

    def _of_call(self, field: str) -> Sequence[int | None]:
        return [None if call is None else getattr(call, field) for call in self.calls]
