"""Reuse the result of an earlier call: the same entry except for its addresses, followed by the same lines.

Iterations repeat, so nearly every call equals an earlier one. The result of the first call is reused, with the place
and buffers of each call. This needs the state to give the same answers as then, and the records of the call to be
adjacent: from its entry to the next call of the same thread. `mio2trace.ops.log.assemble` does the rest, with the same
result.
"""

from __future__ import annotations

import msgspec

from mio2trace.model.miopen import Command, Entry, LoggedCall, Message
from mio2trace.ops.families import FIND_2, OPS
from mio2trace.ops.log.draft import State, stated
from mio2trace.ops.operation import GemmCall, Launch, Operation
from mio2trace.ops.values import Tensor

Record = Entry | Command | Message
_Said = str | tuple[str, ...]

_LONGEST = 200  # records of a call that are compared
_NODES = 1 << 16


class _Outcome(msgspec.Struct):
    """The result of a call. ``end``: the record whose line is the last one of the call, and the number of lines after
    it.

    Records are counted from the entry; ``command`` is 0 for a call without one. ``statements`` and ``types``: the
    counters of the state for which it holds. ``dtype``: the type that the state gave.
    """

    operation: Operation
    tensor: Tensor | None
    end: tuple[int, int]
    command: int
    launches: tuple[tuple[int, Launch], ...]
    gemms: tuple[tuple[int, GemmCall], ...]
    statements: int
    types: int
    dtype: tuple[str | None, bool]


class _Node(msgspec.Struct):
    """The records so far. ``following``: by the next record; its key is the object that equal records share."""

    says: _Said = ""
    following: dict[int, _Node] = {}
    outcome: _Outcome | None = None


class Repeats:
    """Reuses results where possible, and learns from each call that was worked out."""

    def __init__(self, state: State, records: tuple[Record, ...]) -> None:
        self._state = state
        self._records = records
        self._roots: dict[int, _Node] = {}
        self._starts: set[int] = set()  # identities of the calls whose entries begin an operation
        self._nodes = 0
        # The call that is being worked out: its entry, and the earlier statements.
        self._pending: tuple[int, int] | None = None

    def take(self, at: int) -> int:
        """Make the operations of calls from the entry ``records[at]`` on. Return the place of the first entry without a
        result."""
        records, state = self._records, self._state
        done, replace = state.done, msgspec.structs.replace
        first = records[at]
        assert isinstance(first, Entry)
        if not self._is_start(first.call):
            return at
        self._learn(at)
        last = len(records) - 1
        made = len(done)
        while True:
            entry = records[at]
            assert isinstance(entry, Entry)
            thread = entry.call.thread
            node, end = self._follow(at, entry, last)
            outcome = node.outcome if node is not None else None
            if outcome is None or outcome.statements != state.statements:
                break
            if outcome.types != state.types.version:
                if outcome.tensor is not None and state.types.find(outcome.tensor) != outcome.dtype:
                    break
                outcome.types = state.types.version
            if thread in state.current:
                state.complete(thread)
            place, more = outcome.end
            end_line = records[at + place].line
            operation = replace(
                outcome.operation,
                index=made,
                line=entry.line,
                end_line=end_line + more if more else end_line,
                command_line=records[at + outcome.command].line if outcome.command else 0,
                addresses=entry.addresses,
                stamp=entry.stamp,
                elapsed_ns=entry.elapsed_ns,
            )
            if outcome.launches:
                lines = [replace(x, line=records[at + place].line) for place, x in outcome.launches]
                operation = replace(operation, launches=tuple(lines))
            if outcome.gemms:
                calls = [replace(x, line=records[at + place].line) for place, x in outcome.gemms]
                operation = replace(operation, gemms=tuple(calls))
            done.append(operation)
            made += 1
            at = end
        self._pending = (at, state.statements)
        return at

    def _follow(self, at: int, entry: Entry, last: int) -> tuple[_Node | None, int]:
        """Return the result for an entry's call up to the next call of its thread, and the place of that call; None if
        unknown."""
        records, starts, end = self._records, self._starts, at
        call = entry.call
        thread = call.thread
        node = self._roots.get(id(call))
        while node is not None:
            if end == last:
                return None, end  # more records may follow
            end += 1
            record = records[end]
            if type(record) is Command:  # a failing `isinstance` takes several times as long
                if record.thread != thread:
                    return None, end
                node = node.following.get(id(record.text))
                if node is not None and node.says != record.tag:
                    return None, end
            elif isinstance(record, Entry):
                call = record.call
                if call.thread != thread:
                    return None, end
                key = id(call)
                if key in starts or self._is_start(call):
                    break
                node = node.following.get(key)
            elif record.thread != thread:
                return None, end
            else:
                node = node.following.get(id(record.text))
                if node is not None and node.says != _says(record):
                    return None, end
        return node, end

    def _is_start(self, call: LoggedCall) -> bool:
        """Return whether entries of a call begin an operation."""
        if id(call) in self._starts:
            return True
        starts = not call.nested and (call.api in OPS or call.api in FIND_2)
        if starts:
            self._starts.add(id(call))
        return starts

    def _learn(self, until: int) -> None:
        """Store the call that was worked out last, now that the next one begins at ``records[until]``."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        state, (at, statements) = self._state, pending
        group = self._records[at:until]
        entry, following = group[0], self._records[until]
        if len(group) > _LONGEST or not isinstance(entry, Entry) or not isinstance(following, Entry):
            return
        op = OPS.get(entry.call.api)
        if op is None or op.api == "miopenExecuteFusionPlan" or statements != state.statements or self._nodes > _NODES:
            return
        draft = state.current.get(entry.thread)
        if draft is None or draft.entry is not entry or draft.index != len(state.done) - 1:
            return
        for record in (*group, following):
            if record.thread != entry.thread or (isinstance(record, Message) and record.kind == "error"):
                return
        if any(isinstance(record, Entry) and not record.call.nested for record in group[1:]):
            return
        operation = state.complete(entry.thread)
        assert operation is not None
        places = {record.line: place for place, record in reversed(list(enumerate(group)))}
        last = max(place for place, record in enumerate(group) if record.line <= operation.end_line)
        tensor = stated(entry.call).tensor
        self._node(group).outcome = _Outcome(
            operation,
            tensor,
            (last, operation.end_line - group[last].line),
            places.get(operation.command_line, 0),
            tuple((places[launch.line], launch) for launch in operation.launches),
            tuple((places[gemm.line], gemm) for gemm in operation.gemms),
            statements,
            state.types.version,
            state.types.find(tensor) if tensor is not None else (None, False),
        )

    def _node(self, group: tuple[Record, ...]) -> _Node:
        first = group[0]
        assert isinstance(first, Entry)
        node = self._roots.setdefault(id(first.call), _Node())
        for record in group[1:]:
            key, says = (id(record.call), "") if isinstance(record, Entry) else (id(record.text), _says(record))
            child = node.following.get(key)
            if child is None or child.says != says:
                child = node.following[key] = _Node(says)
                self._nodes += 1
            node = child
        return node


def _says(record: Command | Message) -> _Said:
    return record.tag if isinstance(record, Command) else (record.level, record.function, record.kind)
