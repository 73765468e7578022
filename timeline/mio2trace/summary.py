"""The results of a conversion in numbers: the metadata of the trace, the lines for the person who ran it, and why a
kernel belongs to an operation or to none (``--explain``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import exp
from typing import TYPE_CHECKING, Any

import msgspec

from mio2trace.align import NONE, Alignment, Pass
from mio2trace.align.clocks.axis import SAME
from mio2trace.align.links import SURE, Links
from mio2trace.evidence import EVIDENCE
from mio2trace.files import Input
from mio2trace.measures import Measures
from mio2trace.measures.completeness import CLASSES
from mio2trace.measures.statistics import fixed
from mio2trace.model.choices import GemmTable, SolverTable
from mio2trace.model.log import FrameworkLog
from mio2trace.model.miopen import MiopenLog
from mio2trace.model.profile import Activity, Profile
from mio2trace.model.tf import TfProfile, TfView
from mio2trace.notes import Notes
from mio2trace.ops.operation import Operation, operation_name
from mio2trace.outgoing import count

if TYPE_CHECKING:
    from mio2trace.align.operations.chances import Posterior
    from mio2trace.align.operations.lattice import Windows
    from mio2trace.align.operations.stream import Stream

_NOWHERE = "unattributed"


def describe(record: Profile | FrameworkLog | MiopenLog | TfProfile | TfView | SolverTable | GemmTable) -> str:
    """Return what a record holds."""
    if isinstance(record, Profile):
        kernels = int(record.commands.is_kernel.sum())
        held = f"{count(kernels, 'kernel')}, {count(len(record.activities) - kernels, 'copy')}"
        return f"profile of {count(record.records, 'call')}: {held}"
    if isinstance(record, FrameworkLog):
        layers = len({layer.place for layer in record.times.key.values})
        runs = sum(event.kind == "iteration" for event in record.events)
        printed = f"{count(layers, 'layer')} printed" + (f", {count(runs, 'iteration')}" if runs else "")
        return printed if layers else "log lines without layer times"
    if isinstance(record, TfProfile):
        ran = sum(len(step.executions) for node in record.nodes for step in node.steps)
        nodes, steps = count(len(record.nodes), "node"), count(len(record.steps), "step")
        return f"{nodes}, {steps}, {count(ran, 'op execution')}"
    if isinstance(record, TfView):
        return f"printed {record.view} view of {count(len(record.rows), 'row')}, without times"
    if isinstance(record, SolverTable):
        return f"{record.kind} of {count(len(record.records), 'problem')}"
    if isinstance(record, GemmTable):
        return f"{count(len(record.gemms), 'GEMM')} of {record.gemms[0].library if record.gemms else 'none'}"
    return f"MIOpen log of {count(record.size, 'record')}"


def metadata(generator: str, inputs: Sequence[Input], measured: Sequence[Measures]) -> dict[str, Any]:
    """Return the metadata object without its clock and notes (trace-contract.md 2)."""
    return {
        "generator": generator,
        # Sorted, so that the order of the command line does not matter.
        "inputs": sorted(
            (
                {"format": file.format, "size": size, "sha256": sha256}
                for file in inputs
                for size, sha256 in ((file.size, file.sha256), *file.parts)
            ),
            key=lambda fact: (fact["format"], fact["sha256"]),
        ),
        "clock": {},
        "attribution": attribution(measured),
        "completeness": completeness(measured),
        "steps": steps(measured),
        "notes": {},
    }


def completeness(measured: Sequence[Measures]) -> dict[str, Any]:
    """Return whether the profiles hold all work, and the missing parts: counts by class over all processes."""
    counts: Counter[str] = Counter()
    for measures in measured:
        counts.update(measures.completeness.counts)
    return {"complete": not counts, "counts": {name: counts[name] for name in CLASSES if counts[name]}}


def steps(measured: Sequence[Measures]) -> list[dict[str, Any]]:
    """Return the mean steady step of the slowest device, for each process whose steps have a known length."""
    found = []
    for measures in measured:
        step = measures.steady.step_time
        if step is not None:
            label = measures.alignment.profile.process.label
            found.append({**({"process": label} if label else {}), **step.record()})
    return found


def attribution(measured: Sequence[Measures]) -> dict[str, Any]:
    """Count kernels and copies by the evidence of their layer; each is counted once."""
    kernels = copies = unsure = contradictions = not_drawn = 0
    by: Counter[str] = Counter()
    time: Counter[str] = Counter()
    for measures in measured:
        links = measures.alignment.links
        unsure += len(links.layer_unsure | links.operation_unsure)
        contradictions += sum(links.contradictions.values())
        for word, cost in measures.layer_evidence.items():
            kernels += cost.kernels
            copies += cost.copies
            not_drawn += cost.untimed + cost.untimed_copies
            by[word or _NOWHERE] += cost.kernels + cost.copies
            time[word or _NOWHERE] += cost.timed_ns
    result: dict[str, Any] = {
        "kernels": kernels,
        "copies": copies,
        "layer_by": {word: by[word] for word in EVIDENCE if by[word]},
        "unattributed": by[_NOWHERE],
        "unsure": unsure,
        "contradictions": contradictions,
        "kernel_ns": {word: time[word] for word in (*EVIDENCE, _NOWHERE) if time[word]},
    }
    if not_drawn:
        result["without_device_times"] = not_drawn
    with_operations = [measures for measures in measured if measures.operation_at]
    if with_operations:
        result.update(linked(with_operations))
    return result


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Return lines for stderr: the format of each input; the evidence of the links, clocks, sums; notes."""

    inputs: list[str]
    evidence: list[str]
    notes: list[str]


def account(inputs: Sequence[Input], measured: Sequence[Measures], summary: Mapping[str, Any], notes: Notes) -> Account:
    lines: list[str] = []
    # A framework's own profile without devices has no layers to report.
    profiles = [(one, one.alignment.profile) for one in measured]
    measured = [one for one, profile in profiles if profile.activities or not profile.framework.nodes]
    if measured:
        named = any(measures.alignment.net.layers for measures in measured)
        lines += _attribution_lines(summary["attribution"], named, _doubted(measured), _unattributed_set_up(measured))
        lines += _clock_lines(summary["clock"])
        lines += operation_lines(measured)
        lines += _time_lines(measured)
    return Account(
        inputs=[f"{file.name}: {file.format}: {'; '.join(map(describe, file.records))}" for file in inputs],
        evidence=lines,
        notes=[f"{'problem' if note.problem else 'note'}: {note}" for note in notes],
    )


def _unattributed_set_up(measured: Sequence[Measures]) -> int:
    """Count the kernels and copies without a layer before the warm-up: building, filling, searching."""
    count = 0
    for measures in measured:
        links = measures.alignment.links
        set_up = {number for number, pass_ in enumerate(links.passes) if pass_.phase == "setup"}
        if set_up:
            count += sum(not by and at in set_up for by, at in zip(links.layer_by, links.pass_of, strict=True))
    return count


def _doubted(measured: Sequence[Measures]) -> int:
    """Return the number of kernels and copies whose layer has low confidence."""
    return sum(
        bool(links.layer_by[position])
        for links in (measures.alignment.links for measures in measured)
        for position in links.layer_unsure
    )


def _attribution_lines(found: Mapping[str, Any], layers: bool, doubted: int, set_up: int) -> list[str]:
    everything = found["kernels"] + found["copies"]
    placed = everything - found["unattributed"]
    if not layers:
        return ["layers: none of the inputs names any"]
    line = f"layers: {placed} of {everything} kernels and copies attributed"
    if found["layer_by"]:
        line += " (" + ", ".join(f"{word} {count}" for word, count in found["layer_by"].items()) + ")"
    if doubted:
        line += f", {doubted} of them not sure"
    if found["unattributed"]:
        whole = sum(found["kernel_ns"].values())
        share = found["kernel_ns"].get("unattributed", 0)
        line += f"; {found['unattributed']} not attributed"
        line += f", {set_up} of them set-up" if set_up else ""
        line += f" ({_percent(share, whole)} of all kernel time)" if whole else ""
    return [line]


def _clock_lines(clock: Mapping[str, Any]) -> list[str]:
    device, log = clock.get("device"), clock.get("log")
    parts = []
    if device and device["method"] == SAME.method:
        parts.append("one for host and device")
    elif device:
        drift = f", drift {device['drift_ppb']} ppb" if device["drift_ppb"] else ""
        parts.append(
            f"host = device + {device['offset_ns'] / 1e9:.6f} s, error {device['error_ns'] / 1000:g} us"
            f"{drift} ({device['method']})"
        )
    else:
        parts.append("device and host not related (no times of one of them)")
    if log:
        hours = log["offset_ns"] / 3.6e12
        parts.append(f"log is UTC{hours:+g} h")
    parts += _process_parts(clock.get("processes", ()))
    return ["clocks: " + "; ".join(parts)]


def _process_parts(processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Describe how the clocks of a job's processes relate to the first one; processes with equal relations are
    joined."""
    alike: dict[tuple[int, int | None, str], list[str]] = {}
    names = [
        f"rank {one['rank']}" if "rank" in one else one.get("name", f"pid {one.get('pid', '?')}") for one in processes
    ]
    for name, one in zip(names[1:], processes[1:], strict=True):
        alike.setdefault((one["offset_ns"], one["error_ns"], one["method"]), []).append(name)
    for (offset, error, method), of in alike.items():
        which = ", ".join(of) if len(of) < 4 else f"{of[0]} to {of[-1]}"
        moved = f" {offset / 1e9:+.6f} s" if offset else ""
        wrong = "error not known" if error is None else f"error {error / 1000:g} us"
        yield f"{which} as {names[0]}{moved}, {wrong} ({method})"


def _time_lines(measured: Sequence[Measures]) -> list[str]:
    """Return kernel time per pass; the iterations share one line."""
    time: Counter[Pass | None] = Counter()
    iterations: set[int] = set()
    for measures in measured:
        passes = (*measures.alignment.links.passes, None)
        for pass_, ns in zip(passes, measures.passes.timed_ns, strict=True):
            folded = pass_
            if pass_ is not None and pass_.iteration:
                iterations.add(pass_.iteration)
                folded = Pass(phase=pass_.phase, direction=pass_.direction)
            if ns:
                time[folded] += ns
    if not time or set(time) == {None}:
        return []
    parts = []
    for pass_, ns in time.items():
        if pass_ is None:
            name = "outside any pass"
        elif pass_.phase == "iteration":
            name = count(max(1, len(iterations)), "iteration") + (f" · {pass_.direction}" if pass_.direction else "")
        else:
            name = pass_.name
        parts.append(f"{name} {fixed(ns / 1e6, 3)} ms")
    return ["kernel time: " + ", ".join(parts)]


# ----------------------------------------------------------------------------------------------------------------------
# The cost of operations and the doubts about them: counts for the metadata, findings for the person.

SHOWN = 3
"""The most names in a line."""
SHARE = 0.005
"""A finding with a smaller part of the kernel time gets no line."""


def linked(measured: Sequence[Measures]) -> dict[str, Any]:
    """Return ``operations``, ``operation_by``, ``outside_operations``, and times; every activity is counted once."""
    by: Counter[str] = Counter()
    time: Counter[str] = Counter()
    operations = without = find = find_kernels = 0
    for measures in measured:
        operations += len(measures.operation_at)
        without += sum(measures.first_of[index] == NONE for index in measures.operation_at)
        for word, cost in measures.operation_evidence.items():
            by[word] += cost.kernels + cost.copies
            time[word] += cost.timed_ns
        for cost in measures.searches.values():
            find += cost.timed_ns
            find_kernels += cost.kernels
    outside, outside_ns = by.pop("", 0), time.pop("", 0)
    is_unsure = any(measures.is_find_unsure for measures in measured)
    return {
        "operations": operations,
        "operation_by": {word: by[word] for word in EVIDENCE if by[word]},
        "outside_operations": outside,
        "operations_without_kernels": without,
        "operation_kernel_ns": {word: time[word] for word in EVIDENCE if time[word]} | {"outside": outside_ns},
        "find": {"kernels": find_kernels, "kernel_ns": find} | ({"sure": False} if is_unsure else {}),
    }


def operation_lines(measured: Sequence[Measures]) -> list[str]:
    """Return the number of kernels that have an operation, by evidence; kernels without one by name and share of time;
    and what stands out.

    Each line begins with the process if there are several.
    """
    said = []
    for measures in measured:
        label = measures.alignment.profile.process.label
        said += [f"{label}: {line}" if label else line for line in _lines(measures)] if measures.operation_at else []
    return said


def _lines(measures: Measures) -> Iterator[str]:
    by = {word: cost.kernels for word, cost in measures.operation_evidence.items() if word}
    words = ", ".join(f"{word} {by[word]}" for word in EVIDENCE if by.get(word))
    alignment = measures.alignment
    is_kernel = alignment.profile.commands.is_kernel
    unsure = sum(bool(is_kernel[at]) for at in alignment.links.operation_unsure)
    yield (
        f"operations: {len(measures.operation_at)} in {_told_by(alignment.links.operations)};"
        + f" {sum(by.values()):,} of {count(measures.whole.kernels, 'kernel')} attributed"
        + (f" ({words})" if words else "")
        + (f", {unsure} of them not sure" if unsure else "")
    )
    whole = measures.whole.timed_ns or 1
    yield from _outside(measures, whole)
    yield from _without_kernels(measures)
    yield from _findings(measures, whole)


def _outside(measures: Measures, whole: int) -> Iterator[str]:
    outside = measures.names_outside
    if outside:
        time = Counter({name: cost.timed_ns for name, cost in outside.items()})
        yield (
            f"outside any operation: {count(sum(cost.kernels for cost in outside.values()), 'kernel')},"
            f" {_percent(time.total(), whole)} of all kernel time: "
            + _list(
                [f"{name} {_percent(ns, whole)} ({outside[name].kernels})" for name, ns in _most(time)],
                len(time),
            )
        )


def _without_kernels(measures: Measures) -> Iterator[str]:
    idle: Counter[str] = Counter()
    for index, operation in measures.operation_at.items():
        if measures.first_of[index] == NONE:
            idle[f"{'find ' if operation.phase == 'find' else ''}{operation.primitive}"] += 1
    if idle:
        yield f"operations without kernels: {sum(idle.values())}: " + _list(
            [f"{name} ({number})" for name, number in _most(idle)], len(idle)
        )


def _findings(measures: Measures, whole: int) -> Iterator[str]:
    """Possible causes of a slow network: searches, naive solvers, layout transposes."""
    searches = [cost for cost in measures.searches.values() if cost.kernels]
    if searches:
        ran = sum(cost.timed_ns for cost in searches)
        part = f"{_percent(ran, whole)} of all kernel time{', not sure' if measures.is_find_unsure else ''}"
        yield f"find: {count(len(searches), 'search')} ran {_ms(ran)} of kernels, {part}"
    sums = measures.operations
    executed = {index: operation for index, operation in measures.operation_at.items() if operation.phase == "run"}
    naive = [ns for index, ns in sums.naive_ns.items() if index in executed]
    if sum(naive) > SHARE * whole:
        part = f"{_percent(sum(naive), whole)} of all kernel time"
        yield f"naive or fallback solvers: {count(len(naive), 'operation')}, {_ms(sum(naive))}, {part}"
    convolution = sum(sums.timed_ns[index] for index, operation in executed.items() if operation.primitive == "conv")
    helpers = Counter({role: ns for (primitive, role), ns in measures.helpers.items() if primitive == "conv"})
    transposes = helpers.pop("transpose", 0)
    if transposes > SHARE * convolution:
        yield f"layout transposes: {_ms(transposes)}, {_percent(transposes, convolution)} of the convolutions' time"
    if sum(helpers.values()) > SHARE * convolution:
        parts = [f"{role} {_percent(ns, convolution)}" for role, ns in _most(helpers)]
        yield f"other helpers of convolutions: {_list(parts, len(helpers))} of the convolutions' time"


def _most(counter: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]


def _list(parts: Sequence[str], of: int) -> str:
    return ", ".join(parts) + (f" and {of - len(parts)} more" if of > len(parts) else "")


def _ms(ns: int) -> str:
    return f"{fixed(ns / 1e6, 3)} ms"


def _percent(part: float, whole: float) -> str:
    return f"{fixed(100 * part / whole, 1)} %"


def _told_by(operations: Sequence[Operation]) -> str:
    """Return where the calls are stated: lines of a log, ranges of the profile, or both."""
    logged = sum(operation.line > 0 for operation in operations)
    if logged == len(operations):
        return "the log"
    return "log and profile" if logged else "the profile's ranges"


# -- Why a kernel belongs to an operation, or to none ------------------------------------------------------------------

ALTERNATIVES = 3
"""The most other operations that are listed."""
LEAST, CERTAIN = 0.005, 0.9995
"""Probabilities outside of these are printed as 0 and as 100 %."""
MOST_NATS = 40.0


def explain(alignment: Alignment, what: str) -> Iterator[str]:
    """Return lines on ``kernel N`` (call or dispatch), ``operation N`` or ``line N`` (of the log, in an operation's
    entry).

    Raises ValueError if it does not exist.
    """
    kind, _, number = what.replace(":", " ").strip().partition(" ")
    if kind not in ("kernel", "operation", "line") or not number.strip().isdecimal():
        raise ValueError(
            f"{what}: expected kernel N (its call_index, dispatch_id or event_index), operation N or line N"
        )
    value = int(number)
    if kind == "kernel":
        # Copies have numbers of their own in a profile that numbers its dispatches.
        numbered = [place for place, activity in enumerate(alignment.profile.activities) if activity.number == value]
        numbered.sort(key=lambda place: alignment.profile.activities[place].kind != "kernel")
        if numbered:
            yield from _kernel(alignment, numbered[0], alignment.profile.activities[numbered[0]])
            return
    else:
        for operation in alignment.links.operations:
            found = operation.index == value if kind == "operation" else operation.line <= value <= operation.end_line
            if found:
                yield from _operation(alignment, operation)
                return
    raise ValueError(f"{what}: none in these files")


def _kernel(alignment: Alignment, position: int, activity: Activity) -> Iterator[str]:
    links = alignment.links
    size = f", {'x'.join(map(str, activity.grid))} work items" if activity.grid else ""
    yield f"{activity.kind} {activity.number}: {activity.name}{size}{_time(activity)}"
    run = links.run_of[position]
    if run == NONE:
        pass_ = links.pass_of[position]
        where = f" ({links.passes[pass_].name})" if pass_ != NONE else ""
        yield f"  layer: none{where}"
    else:
        layer = links.runs[run]
        doubt = _doubt(links.layer_confidence.get(position, 1.0))
        yield f"  layer: {layer.layer}, {links.passes[layer.pass_].name}, by {links.layer_by[position]}{doubt}"
        if (odds := _layer_odds(links, position, layer.layer)) is not None:
            yield f"    {odds}"
    streams = [stream for stream in alignment.streams if position in stream.positions]
    for stream in streams:
        yield from _link(alignment, stream, stream.positions.index(position), position)
    if not streams:
        yield from _stated(alignment, position)


def _layer_odds(links: Links, position: int, layer: str) -> str | None:
    """Return ``91 %: the next best is conv2, 7 %``. If only the neighbours are known, they share all of the rest."""
    confidence = links.layer_confidence.get(position, 1.0)
    if confidence >= CERTAIN:
        return None
    name, probability = links.next_layer.get(position, ("", 0.0))
    if name and name != layer and probability >= LEAST:
        return f"{percent(confidence)}: the next best is {name}, {percent(probability)}"
    names = [_layer_beside(links, position, step, layer) for step in (-1, 1)]
    beside = " or ".join(dict.fromkeys(name for name in names if name))
    return f"{percent(confidence)}: else {f'{beside}, or none' if beside else 'none'}, {percent(1 - confidence)}"


def _layer_beside(links: Links, position: int, step: int, layer: str) -> str:
    """Return the nearest other layer among the activities before or after the position."""
    places = range(position, len(links.run_of)) if step > 0 else range(position, -1, -1)
    names = (links.runs[run].layer for place in places if (run := links.run_of[place]) != NONE)
    return next((name for name in names if name != layer), "")


def _stated(alignment: Alignment, position: int) -> Iterator[str]:
    """Return the operation that the profile itself states: there was no choice."""
    links = alignment.links
    index = links.operation_of[position]
    for operation in links.operations:
        if operation.index == index:
            doubt = _doubt(links.operation_confidence.get(position, 1.0))
            yield f"  {_named(operation)}, by {links.operation_by[position]}{doubt}"
            return
    if links.operations:
        yield "  operation: none"


def _link(alignment: Alignment, stream: Stream, number: int, position: int) -> Iterator[str]:
    links, posterior = alignment.links, stream.posterior
    index = links.operation_of[position]
    doubt = _doubt(links.operation_confidence.get(position, 1.0))
    places = {operation.index: place for place, operation in enumerate(stream.operations)}
    if index == NONE:
        yield "  operation: none"
    else:
        operation = stream.operations[places[index]]
        yield f"  {_named(operation)}, by {links.operation_by[position]}{doubt}"
        yield f"    {_reasons(stream, number, places[index])}"
    if posterior is not None:
        yield f"  {_odds(stream, posterior, number)}"
    yield f"  {_window(stream, stream.windows, number)}"
    if posterior is not None:
        for place, probability in posterior.others[number][:ALTERNATIVES]:
            if place != NONE:
                reasons = _reasons(stream, number, place)
                yield f"  else: {_named(stream.operations[place])}, {percent(probability)}: {reasons}"


def _odds(stream: Stream, posterior: Posterior, number: int) -> str:
    """Return ``91 %: the next best is operation 3, 7 %; the log lost this call, 2 %``."""
    place = posterior.operation[number]
    confidence = posterior.confidence[number]
    parts = [
        f"the next best is operation {stream.operations[other].index}, {percent(probability)}"
        for other, probability in posterior.others[number]
        if other != NONE
    ][:1]
    lost = posterior.gone[number]
    if place != NONE and lost >= LEAST:
        parts.append(f"the log lost this call, {percent(lost)}")
    what = "" if place != NONE else "the log lost its call: " if lost > confidence / 2 else "outside any call: "
    said = "100 %" if confidence >= CERTAIN else percent(confidence)
    return f"{what}{said}" + (f": {'; '.join(parts)}" if parts else "")


def _reasons(stream: Stream, number: int, place: int) -> str:
    likelihood = stream.likelihood
    fit = likelihood.fit(number, place)
    operation = stream.operations[place]
    parts = []
    handles, pointers = set(likelihood.kernels.named[number]), likelihood.pointers[place]
    shared = handles.intersection(pointers)
    if shared:
        names = [name for name, address in operation.tensors if address in shared]
        parts.append(f"has its {', '.join(dict.fromkeys(names))}")
    others = handles.difference(pointers)
    if others:
        parts.append(f"{len(others)} of its buffers are other operations'")
    if fit.launched:
        parts.append("name and size are on a launch line")
    kind = likelihood.kernels.kind(number)
    if kind.name is None:
        parts.append("its name is none that MIOpen is known to have")
    else:
        of = "/".join(kind.name.primitives) or "any primitive"
        directions = "/".join(kind.directions) or "any direction"
        parts.append(
            f"named like a kernel of {of} ({directions})" if fit.named else f"named like a kernel of {of}, not of this"
        )
    if kind.gemm is not None:
        parts.append(f"GEMM {kind.gemm.m}x{kind.gemm.n}x{kind.gemm.k}")
    return f"{'; '.join(parts)}: {_times(fit.nats)}"


def _times(nats: float) -> str:
    """Describe a likelihood ratio in words."""
    if abs(nats) < 0.05:
        return "as likely as anywhere"
    factor = exp(min(abs(nats), MOST_NATS))
    return f"{factor:.3g} times as likely as anywhere" if nats > 0 else f"{factor:.3g} times less likely than anywhere"


def _window(stream: Stream, windows: Windows, number: int) -> str:
    first, last = windows.first[number], windows.last[number]
    if not windows.by:
        return "nothing bounds when the log's operations ran: only order and similarity decide"
    if last < first:
        return f"by {windows.by} it ran outside any operation"
    lines = f"lines {stream.operations[first].line} to {stream.operations[last].line}"
    return f"by {windows.by} it can belong to {count(last - first + 1, 'operation')} ({lines})"


def _operation(alignment: Alignment, operation: Operation) -> Iterator[str]:
    links, activities = alignment.links, alignment.profile.activities
    yield _named(operation)
    for doubt in operation.doubts:
        yield f"  {doubt}"
    owned = [position for position, index in enumerate(links.operation_of) if index == operation.index]
    for position in owned:
        activity = activities[position]
        doubt = _doubt(links.operation_confidence.get(position, 1.0))
        by = f"by {links.operation_by[position]}{doubt}"
        yield f"  {activity.kind} {activity.number}: {activity.name}{_time(activity)}, {by}"
    if owned:
        return
    yield "  no kernel"
    for stream in alignment.streams:
        places = [place for place, one in enumerate(stream.operations) if one.index == operation.index]
        for place in places:
            possible = [
                number
                for number in range(len(stream.positions))
                if stream.windows.first[number] <= place <= stream.windows.last[number]
            ]
            possible.sort(key=lambda number: (-stream.likelihood.fit(number, place).nats, number))
            for number in possible[:ALTERNATIVES]:
                activity = activities[stream.positions[number]]
                held = links.operation_of[stream.positions[number]]
                whose = "outside any operation" if held == NONE else f"of operation {held}"
                why = _reasons(stream, number, place)
                yield f"  nearest: kernel {activity.number} {activity.name}, {whose}: {why}"


def _named(operation: Operation) -> str:
    line = f", line {operation.line}" if operation.line else ""
    return f"operation {operation.index}{line}: {operation_name(operation)}"


def _time(activity: Activity) -> str:
    if activity.start_ns is None or activity.end_ns is None:
        return ""
    return f", {(activity.end_ns - activity.start_ns) / 1e6:.3f} ms"


def _doubt(confidence: float) -> str:
    return "" if confidence >= SURE else f", not sure: {percent(confidence)}"


def percent(probability: float) -> str:
    """Return a probability as text: 100 % only if it is certain, 0 % only if it is impossible."""
    if probability < 0.01:
        return "less than 1 %"
    return f"{min(99, round(100 * probability))} %"
