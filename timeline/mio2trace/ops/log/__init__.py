"""Turn a log's records into operations: an entry, its command and its level lines are one operation (miopen-log.md 10).

Records belong to the last compute or find call of their thread. A log without entries gives one operation per command;
a log with only level lines gives one per search and per execution.
"""

from __future__ import annotations

from operator import methodcaller

import msgspec

from mio2trace.model.miopen import Command, Entry, LoggedCall, Message, MiopenLog, OperationDirection
from mio2trace.ops import values
from mio2trace.ops.command import base, driver_line, first_word, form_of, parse, refusal
from mio2trace.ops.families import FIND_2, FIND_2_TENSORS, OPS, WORDS
from mio2trace.ops.log.level_lines import LevelLines
from mio2trace.ops.log.state import Draft, State, run_buffers, run_tensors, stated
from mio2trace.ops.operation import GemmCall, Launch, Operation
from mio2trace.ops.problem import FORMS, CommandError, Form, Phase, Problem, direction_in
from mio2trace.ops.values import Tensor, solver_name

Record = Entry | Command | Message
_Said = str | tuple[str, ...]


# -- Repeats: the result of an earlier call, used again ----------------------------------------------------------------
#
# Iterations repeat, so nearly every call equals an earlier one: the same entry except for its addresses, followed by
# the same lines. The result of the first call is used again, with the place and buffers of each call. This needs the
# state to give the same answers as then, and the records of the call to be adjacent: from its entry to the next call
# of the same thread. `Assembly` does the rest, with the same result.

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


# -- Operations --------------------------------------------------------------------------------------------------------


def operations(log: MiopenLog) -> tuple[Operation, ...]:
    """Return every compute and find call, in log order."""
    return Assembly(log).result()


def log_form(log: MiopenLog) -> Form | None:
    """Return the form of the log's own commands; None if it has none."""
    return form_of({(record.tag, record.text) for record in log.records if isinstance(record, Command) and record.tag})


def driver_command(operation: Operation, form: Form = "newest") -> str:
    """Return ``./bin/MIOpenDriver ...`` for an operation in a version's form. Raises `CommandError`."""
    if operation.problem is None:
        raise CommandError("the log does not show the shapes")
    if form not in FORMS:
        raise CommandError(f"unknown form {form}")
    return driver_line(operation.problem, form)


class Assembly:
    """Processes records one after another. With ``repeats``, the results of equal earlier calls are used."""

    def __init__(self, log: MiopenLog, repeats: bool = True) -> None:
        self._records = log.records
        self._state = State(log.source)
        self._repeats = Repeats(self._state, log.records) if repeats else None
        entries = any(isinstance(record, Entry) and record.call.api in OPS for record in log.records)
        self._lines = LevelLines(self._state, entries)
        self._alone = _alone(log.records)
        self._weights_find_first = not entries and log_form(log) in ("2.1", "2.3")
        self._other_command_seen = False
        self._weights_seen: set[Problem] = set()
        self._entered_last: int | None = None

    def result(self) -> tuple[Operation, ...]:
        """Return all operations, in log order."""
        records, repeats = self._records, self._repeats
        at, end = 0, len(records)
        while at < end:
            record = records[at]
            if isinstance(record, Entry):
                if repeats is not None:
                    at = repeats.take(at)
                    record = records[at]
                    assert isinstance(record, Entry)
                self._entry(record)
            elif isinstance(record, Command):
                self._command(record)
            else:
                self._lines.take(record)
            at += 1
        return self._state.result()

    # Entries

    def _entry(self, entry: Entry) -> None:
        call, state = entry.call, self._state
        if call.nested:
            draft = state.current.get(entry.thread)
            if draft is not None:
                self._nested(draft, entry)
            return
        op = OPS.get(call.api)
        if op is not None:
            facts = stated(call)
            draft = self._open(entry, op.primitive, op.phase, facts.problem, op.direction)
            if facts.problem is not None and facts.problem.plan_kernel is not None:
                draft.problem, draft.arguments, doubts = state.plans.execute(entry, facts.problem)
                draft.doubts += doubts
            if facts.tensor is not None:
                dtype, ambiguous = state.types.find(facts.tensor)
                draft.type(dtype, "descriptor")
                if ambiguous:
                    draft.doubts.append("tensors of this shape had several data types: the last one is taken")
        elif call.api in FIND_2:
            find = call.api == "miopenFindSolutions"
            conv, doubts = (state.problems.find(entry), []) if find else state.problems.run(entry)
            names = " ".join(run_tensors(entry))
            primitive = next((kind for part, kind in FIND_2_TENSORS if part in names), "find2")
            draft = self._open(entry, "conv" if conv else primitive, "find" if find else "run", conv)
            draft.arguments = run_buffers(entry)
            draft.doubts += doubts
        else:
            self._reference(entry)

    def _reference(self, entry: Entry) -> None:
        """Add a call to which later calls refer."""
        api, state = entry.api, self._state
        if api.startswith("miopenSetOpArgs"):
            state.plans.arguments(entry, stated(entry.call).parameters.buffers(entry.addresses))
        elif api == "miopenSetProblemTensorDescriptor":
            state.problems.set(entry)
        elif api.startswith("miopenSet") and "TensorDescriptor" in api and "Problem" not in api:
            state.types.set(entry)
        elif api == "miopenCreateConvProblem":
            state.problems.create(entry)
        elif api.startswith("miopenCreate") or api == "miopenCompileFusionPlan":
            state.plans.add(entry)

    def _nested(self, draft: Draft, entry: Entry) -> None:
        """Add an internal entry: its literal names the GEMM path, or a GEMM call's library (miopen-log.md 3.4)."""
        draft.end_line = entry.end_line
        params = entry.params
        literal = params[0][0].strip('"') if params else entry.api
        draft.nested.append(literal)
        if entry.api.startswith("CallGemm") and draft.gemms and not draft.gemms[-1].library:
            draft.gemms[-1] = msgspec.structs.replace(draft.gemms[-1], library=literal)

    def _open(
        self,
        entry: Entry,
        primitive: str,
        phase: Phase,
        problem: Problem | None,
        called: OperationDirection | None = None,
    ) -> Draft:
        facts = stated(entry.call)
        draft = self._state.start(Draft.of(entry, entry.api, primitive, phase, problem, called))
        self._entered_last = entry.thread
        draft.entry = entry
        draft.parameters = facts.parameters
        draft.end_line = entry.end_line
        if problem is None:
            draft.doubts.append("the entry does not hold the problem" if entry.complete else "entry cut off")
            draft.unread = entry.complete
        elif not entry.complete:
            draft.doubts.append("entry cut off")
        if facts.of_two:
            draft.doubts.append("a parameter stands twice: the entry has lines of two calls")
            draft.unread = True
        draft.torn = not entry.complete
        number = facts.algorithm
        if number is not None and primitive in ("conv", "fusion") and 0 <= number < len(values.ALGORITHMS):
            draft.algorithm = values.ALGORITHMS[number]
        draft.workspace = facts.workspace
        if facts.solution is not None:
            draft.solver = solver_name(facts.solution)
            if problem is not None:
                draft.problem = self._state.once(_immediate, problem)
        return draft

    # Commands

    def _command(self, command: Command) -> None:
        state = self._state
        problem = parse(command.text, command.tag)
        if not command.tag and command.line not in self._alone:
            state.template = problem
            state.statements += 1
            return
        draft = self._entered(command, problem)
        if draft is not None:
            draft.command = command
            draft.end_line = command.line
            draft.problem = state.once(merged, draft.problem, problem)
        else:
            primitive = problem.primitive if problem is not None else primitive_of(command.text)
            draft = state.start(Draft.of(command, command.tag, primitive, self._phase(command, problem), problem))
            draft.command = command
            if problem is None:
                if refusal(command.text):
                    draft.doubts.append("the command is no plain one: taken as text")
                else:
                    draft.doubts.append("the command is cut off, leaves sizes to the driver, or is of an unknown kind")
                    draft.torn = True
        if problem is not None:
            draft.type(problem.dtype, "command")
            if problem.solver_number:
                draft.solver = solver_name(problem.solver_number) or draft.solver

    def _entered(self, command: Command, problem: Problem | None) -> Draft | None:
        """Return the open call that printed a command: that of its thread, else the last one entered."""
        current = self._state.current
        drafts = [current.get(command.thread)]
        if command.thread is None and self._entered_last is not None:
            drafts.append(current.get(self._entered_last))
        for draft in drafts:
            if draft is None or draft.entry is None or draft.command is not None:
                continue
            if belongs(draft, command, problem):
                return draft
        return None

    def _phase(self, command: Command, problem: Problem | None) -> Phase:
        """Return the phase of a command without an entry. Up to ROCm 5.3 searches for weights print one (7.1)."""
        if "Find" in command.tag:
            return "find"
        if not self._weights_find_first or command.tag != "LogCmdConvolution":
            self._other_command_seen = True
            return "run"
        if problem is None or problem.direction != "backward-weights":
            self._other_command_seen = True
            return "run"
        new = problem not in self._weights_seen
        self._weights_seen.add(problem)
        return "find" if new or not self._other_command_seen else "run"


_immediate = methodcaller("immediate")


def _alone(records: tuple[Record, ...]) -> frozenset[int]:
    """Return the lines of bare commands that are all that the log tells about a run. If a record of the library comes
    before the next bare command, the command is the driver's own first line."""
    bare = [place for place, record in enumerate(records) if type(record) is Command and not record.tag]
    ends = [*bare[1:], len(records)]
    return frozenset(
        records[place].line
        for place, end in zip(bare, ends, strict=False)
        if not any(_tells(records[at]) for at in range(place + 1, end))
    )


def _tells(record: Record) -> bool:
    """Return whether a record belongs to an operation."""
    if isinstance(record, Command):
        return bool(record.tag)
    if isinstance(record, Entry):
        return record.call.api in OPS
    return record.kind in ("search", "execution", "immediate", "summary", "chosen")


# -- Whether a command belongs to an entry's call, and the values that it adds to the entry's problem ------------------


def primitive_of(text: str) -> str:
    """Return the primitive of a command, from its base word."""
    word = first_word(text)
    name = base(word)[0]
    row = WORDS.get(name) or next((row for begin, row in WORDS.items() if name.startswith(begin)), None)
    return row.primitive if row is not None else word or "command"


def belongs(draft: Draft, command: Command, problem: Problem | None) -> bool:
    """Return whether the call printed ``command``, which has the problem ``problem``."""
    entry, direction = draft.problem, draft.direction
    if problem is None:
        return primitive_of(command.text) == draft.primitive
    if ("Find" in command.tag and draft.phase != "find") or not problem.may_print(draft.primitive):
        return False
    by_call = direction_in(command.tag) if command.tag.startswith("miopen") else None
    if direction is not None and any(way not in (None, direction) for way in (problem.direction, by_call)):
        return False
    return entry is None or problem.fits(entry)


def merged(entry: Problem | None, command: Problem | None) -> Problem | None:
    """Return the entry's problem with the values that only the command has."""
    if entry is None or command is None:
        return entry or command
    return entry.with_command(command)
