"""Turn a log's records into operations: an entry, its command and its level lines are one operation (miopen-log.md 10).

Records belong to the last compute or find call of their thread. A log without entries gives one operation per command;
a log with only level lines gives one per search and per execution.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from operator import methodcaller

import msgspec

from mio2trace.model.miopen import Command, Entry, Message, MiopenLog, OperationDirection, parse_params
from mio2trace.ops import values
from mio2trace.ops.command import base, driver_line, first_word, form_of, parse, refusal, ways
from mio2trace.ops.families import FIND_2, FIND_2_TENSORS, OPS, WORDS
from mio2trace.ops.log.level_lines import LevelLines, invoked
from mio2trace.ops.log.state import Draft, State, Stated, run_buffers, run_tensors, stated
from mio2trace.ops.operation import Operation
from mio2trace.ops.problem import FORMS, CommandError, Form, Phase, Problem, direction_in
from mio2trace.ops.values import Tensor, solver_name

Record = Entry | Command | Message


class _Outcome(msgspec.Struct, frozen=True):
    """The operation of a call, for later calls with equal records. ``was``: the lines of its records. ``statements``:
    their number in the state for which this holds. ``dtype``: the type that the state gave to ``tensor``. ``records``
    are kept because the key has their identities."""

    operation: Operation
    was: tuple[int, ...]
    statements: int
    tensor: Tensor | None
    dtype: tuple[str | None, bool]
    records: tuple[Record, ...]

    def again(self, index: int, records: tuple[Record, ...]) -> Operation:
        """Return the operation of equal records, with their own lines and addresses."""
        made, entry = self.operation, records[0]
        assert isinstance(entry, Entry)
        last = bisect_right(self.was, made.end_line) - 1

        def at(line: int) -> int:
            return records[self.was.index(line)].line

        operation = msgspec.structs.replace(
            made, index=index, line=entry.line, end_line=records[last].line + made.end_line - self.was[last],
            command_line=made.command_line and at(made.command_line), addresses=entry.addresses, stamp=entry.stamp,
            elapsed_ns=entry.elapsed_ns,
        )  # fmt: skip
        if made.launches or made.gemms:
            launches = tuple([msgspec.structs.replace(one, line=at(one.line)) for one in made.launches])
            gemms = tuple([msgspec.structs.replace(one, line=at(one.line)) for one in made.gemms])
            operation = msgspec.structs.replace(operation, launches=launches, gemms=gemms)
        return operation


def _identity(record: Record) -> object:
    """Return what equal records share, but for line, time and addresses."""
    if type(record) is Command:
        return id(record.text), record.tag, record.thread
    if type(record) is Message:
        return id(record.text), record.level, record.function, record.kind, record.thread
    assert type(record) is Entry
    return id(record.call)


def _is_start(record: Record) -> bool:
    """Return whether an entry begins an operation."""
    return type(record) is Entry and not record.call.nested and (record.call.api in OPS or record.call.api in FIND_2)


_LONGEST, _MOST_KNOWN = 200, 1 << 14
"""Records of a call that are compared, and calls that are kept."""


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
    """Processes records one after another. With ``repeats``, the operation of an equal earlier call is used again:
    it has the same records up to the next call of its thread, and the state has the same answers for it."""

    def __init__(self, log: MiopenLog, repeats: bool = True) -> None:
        self._records = log.records
        self._state = State(log.source)
        self._repeats = repeats
        self._known: dict[object, _Outcome] = {}
        entries = any(isinstance(record, Entry) and record.call.api in OPS for record in log.records)
        self._lines = LevelLines(self._state, entries)
        self._alone = _alone(log.records)
        self._weights_find_first = not entries and log_form(log) in ("2.1", "2.3")
        self._other_command_seen = False
        self._weights_seen: set[Problem] = set()
        self._entered_last: int | None = None

    def result(self) -> tuple[Operation, ...]:
        """Return all operations, in log order."""
        records, state, known = self._records, self._state, self._known
        starts = [place for place, record in enumerate(records) if _is_start(record)] if self._repeats else []
        for begin, end in pairwise([0, *starts, len(records)]):
            group = records[begin:end]
            key = tuple(map(_identity, group)) if len(group) <= _LONGEST else ()
            outcome = known.get(key)
            if outcome is not None and outcome.statements == state.statements and end < len(records):
                thread = group[0].thread
                same = outcome.tensor is None or state.types.find(outcome.tensor) == outcome.dtype
                if same and records[end].thread == thread:
                    state.complete(thread)
                    state.done.append(outcome.again(len(state.done), group))
                    continue
            statements = state.statements
            for record in group:
                if isinstance(record, Entry):
                    self._entry(record)
                elif isinstance(record, Command):
                    self._command(record)
                else:
                    self._lines.take(record)
            if starts and key and end < len(records) and statements == state.statements and len(known) < _MOST_KNOWN:
                self._learn(key, group, records[end])
        return state.result()

    def _learn(self, key: object, group: tuple[Record, ...], following: Record) -> None:
        """Store what a call became, if its records and the next call are of its thread and no other call is open."""
        state, entry = self._state, group[0]
        draft = state.current.get(entry.thread)
        if not isinstance(entry, Entry) or draft is None or draft.entry is not entry or draft is not state.done[-1]:
            return
        if entry.api not in OPS or entry.api == "miopenExecuteFusionPlan":
            return
        for record in (*group[1:], following):
            if record.thread != entry.thread or (isinstance(record, Message) and record.kind == "error"):
                return
        if any(isinstance(record, Entry) and not record.call.nested for record in group[1:]):
            return
        tensor = stated(entry.call).tensor
        dtype = (None, False) if tensor is None else state.types.find(tensor)
        operation, was = state.complete(entry.thread), tuple(record.line for record in group)
        assert operation is not None
        self._known[key] = _Outcome(operation, was, state.statements, tensor, dtype, group)

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
            draft = self._open(entry, facts, op.primitive, op.phase, facts.problem, op.direction)
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
            draft = self._open(entry, stated(call), "conv" if conv else primitive, "find" if find else "run", conv)
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
        params = parse_params(entry.call.template)  # equal for all entries of the call
        literal = params[0][0].strip('"') if params else entry.api
        draft.nested.append(literal)
        if entry.api.startswith("CallGemm") and draft.gemms and not draft.gemms[-1].library:
            draft.gemms[-1] = msgspec.structs.replace(draft.gemms[-1], library=literal)

    def _open(
        self,
        entry: Entry,
        facts: Stated,
        primitive: str,
        phase: Phase,
        problem: Problem | None,
        called: OperationDirection | None = None,
    ) -> Draft:
        call, line = entry.call, entry.line
        draft = self._state.start(
            Draft(
                call.api, primitive, phase, problem, called, line, line + call.lines - 1, call.thread, entry.stamp,
                entry.elapsed_ns, entry=entry, parameters=facts.parameters, torn=not call.complete,
                workspace=facts.workspace,
            )
        )  # fmt: skip
        self._entered_last = call.thread
        if problem is None:
            draft.doubts.append("the entry does not hold the problem" if entry.complete else "entry cut off")
            draft.unread = entry.complete
        elif not entry.complete:
            draft.doubts.append("entry cut off")
        if facts.of_two:
            draft.doubts.append("a parameter stands twice: the entry has lines of two calls")
            draft.unread = True
        number = facts.algorithm
        if number is not None and primitive in ("conv", "fusion") and 0 <= number < len(values.ALGORITHMS):
            draft.algorithm = values.ALGORITHMS[number]
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
            further: tuple[OperationDirection, ...] = ()
            if problem is not None and problem.direction is None and not command.tag and (of := ways(command.text)):
                problem, further = problem.of_way(of[0]), of[1:]
            draft = state.start(Draft.of(command, command.tag, primitive, self._phase(command, problem), problem))
            draft.command, draft.further = command, further
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
            if draft is not None and draft.entry is not None and draft.command is None:
                own = draft.problem, problem, draft.primitive, draft.phase, draft.direction
                if self._state.once(_belongs, *own, command.tag, command.text):
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
        if not any(_tells(records[at], records[place]) for at in range(place + 1, end))
    )


def _tells(record: Record, driver: Record) -> bool:
    """Return whether a record belongs to an operation of the library, for the command of ``driver`` or another one."""
    if isinstance(record, Command):
        return bool(record.tag)
    if isinstance(record, Entry):
        return record.call.api in OPS
    if record.kind == "invoker" and isinstance(driver, Command):
        return (invoked(record) or ("",))[0] == primitive_of(driver.text)
    return record.kind in ("search", "execution", "immediate", "summary", "chosen")


# -- Whether a command belongs to an entry's call, and the values that it adds to the entry's problem ------------------


def primitive_of(text: str) -> str:
    """Return the primitive of a command, from its base word."""
    word = first_word(text)
    name = base(word)[0]
    row = WORDS.get(name) or next((row for begin, row in WORDS.items() if name.startswith(begin)), None)
    return row.primitive if row is not None else word or "command"


def _belongs(
    entry: Problem | None, problem: Problem | None, primitive: str, phase: Phase, direction: OperationDirection | None,
    tag: str, text: str,
) -> bool:  # fmt: skip
    """Return whether a call printed a command: the entry's problem, the command's problem, and what both state."""
    if problem is None:
        return primitive_of(text) == primitive
    if ("Find" in tag and phase != "find") or not problem.may_print(primitive):
        return False
    by_call = direction_in(tag) if tag.startswith("miopen") else None
    if direction is not None and not {problem.direction, by_call} <= {None, direction}:
        return False
    return entry is None or problem.fits(entry)


def merged(entry: Problem | None, command: Problem | None) -> Problem | None:
    """Return the entry's problem with the values that only the command has."""
    if entry is None or command is None:
        return entry or command
    return entry.with_command(command)
