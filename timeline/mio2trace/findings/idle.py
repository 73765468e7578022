"""The rule on idle time, and the advice that fits its largest cause in a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from mio2trace.findings.rule import Found, Rule, Severity, count, ms, part_of, percent
from mio2trace.findings.subject import MOST_LOST, Subject
from mio2trace.measures.device_time import Window
from mio2trace.measures.device_time.gaps import WAITS, Cause
from mio2trace.measures.step_time import StepTime

IDLE = 0.15
SHOWN = 0.05
"""Part of the largest cause that another one takes to be in the sentence."""
WORTH_NAMING = 0.1
"""Part of a cause that one call takes, from which on the sentence names the call."""
DECIDES = 1 / 3
"""Part of a cause that calls of one kind take, from which on the advice is about them."""
LAUNCH_NS = 200_000
"""A mean gap up to this is a host that launches one command after another; in a longer one it does something else."""
_WHY = {
    "host": "host-bound",
    "builds": "program builds",
    "queued": "queued",
    "unknown": "of unknown cause (no calls recorded)",
    "short": "gaps of up to 1 us",
}
_FORMS = (
    (
        re.compile(r"aten::(?:item|_local_scalar_dense|is_nonzero)", re.ASCII),
        "The host waits for a value of the GPU: move .item(), bool() and print of a tensor out of the step.",
    ),
    (
        WAITS,
        "The host waits for results before it launches the next step: call block_until_ready once after several steps.",
    ),
    (
        re.compile(r"(?:hip|cuda)(?:Device|Stream|Event)Synchronize|clFinish", re.ASCII),
        "The host waits for the GPU: remove this synchronisation from the step.",
    ),
    (
        re.compile(r"(?:hip|cuda)Memcpy(?!\w{0,24}Async)", re.ASCII),
        "The copy blocks the host: use pinned memory and an asynchronous copy{torch}.",
    ),
    (
        re.compile(r"(?:hip|cuda)(?:Ext)?(?:Host)?(?:Malloc|Free|Alloc)", re.ASCII),
        "The host allocates memory in the step: allocate before the step, or use a caching allocator.",
    ),
    (
        re.compile(r"dataloader", re.ASCII | re.IGNORECASE),
        "The step waits for data: use more loader workers, prefetching and pinned memory.",
    ),
)
_BUILDS = "Programs are built or loaded in the step: run a warm-up before you measure."
_KEEP_CACHE = " Keep MIOpen's kernel cache between runs (MIOPEN_CUSTOM_CACHE_DIR)."
_ONE_STEP = (
    "Record several steps after a warm-up: the only complete step may include one-time work (builds, allocations)."
)
_PART = "Record several complete steps: this recording begins or ends within the step."
_QUEUED = "The host launched the work in time: look for what it waits for (events between streams, copies, processes)."
_NO_CALLS = "Record the host's calls to see the cause: {how}."
_GRAPHS = "Graphs already launch the step: look at what the host does between two graph launches."
_LAUNCH_LESS = "The host launches too slowly: launch fewer, larger kernels ({how}) or use larger batches."
_LONG, _LONGEST = "The gaps are long ({} on average)", "The longest gap takes {}"
_PROGRAM = "{gaps}, in no recorded call: look at what the program does there (input data, its own code){how}."
_IN_CALL = "{gaps}: look at why the host is in {name} for so long."
_FEW = "Look at iteration {number} alone: the other steps are busy. --iterations {number} -o out.pftrace shows it."
_LOST = "Record the run again, completely: {part} of the launches have no kernel here, so these gaps may be work."
_FILTERED = "Use the whole file of the profiler: rows were filtered out of this one, so these gaps may be work."
MOST_REPLAYED = 0.5
"""Part of the kernel time that graphs launch, from which on "use graphs" is no advice."""


def cause(one: Cause, count_: int, *, is_filtered: bool = False) -> str:
    """``0.42 ms host-bound (0.31 ms of it in aten::mm at train.py:12) in 12 gaps``; ``count_``: of iterations;
    ``is_filtered``: a gap may be work whose rows were filtered out."""
    if one.why == "short":
        return f"{ms(one.ns / count_)} in {_WHY[one.why]}"
    name, ns = one.during[0] if one.during else ("", 0)
    gaps = count(max(1, round(one.count / count_)), "gap")
    why = "queued, or work that was filtered out," if is_filtered and one.why == "queued" else _WHY[one.why]
    in_one = one.count > 1 and _is_one_gap(one)
    longest = f", the longest {ms(one.longest_ns)}" if in_one else ""
    if not name or ns < WORTH_NAMING * one.ns:
        return f"{ms(one.ns / count_)} {why} in {gaps}{longest}"
    at = f" at {one.line}" if one.line else ""
    where = ""
    if in_one and name == one.longest_during and ns <= one.longest_ns:
        where, longest = " in one gap,", ""
    return f"{ms(one.ns / count_)} {why} ({ms(ns / count_)} of it{where} in {name}{at}) in {gaps}{longest}"


def _is_one_gap(one: Cause) -> bool:
    """Whether one gap holds most of the time."""
    return 2 * one.longest_ns > one.ns


def _of_calls(largest: Cause) -> str:
    """Advice about the calls of one kind that take most of a cause; empty if none takes a third of it."""
    by_form: Counter[str] = Counter()
    for name, ns in largest.during:
        by_form[next((text for form, text in _FORMS if form.search(name)), "")] += ns
    del by_form[""]
    text, ns = by_form.most_common(1)[0] if by_form else ("", 0)
    return text if ns >= DECIDES * largest.ns else ""


def _advice(subject: Subject, largest: Cause) -> str:
    """What helps against the largest cause of idle time in this run."""
    told = subject.steady.told
    if told.part:
        return _PART
    if told.may_be_cold:
        return _ONE_STEP
    if largest.why == "builds":
        return _BUILDS + _KEEP_CACHE * subject.uses_miopen
    if largest.why == "queued":
        return _QUEUED
    if largest.why == "unknown":
        how = "the PyTorch profiler's CPU activity" if subject.is_torch else "rocprofv3 --hip-trace"
        return _NO_CALLS.format(how=how)
    of_calls = _of_calls(largest)
    if of_calls:
        return of_calls.format(torch=" (non_blocking=True)" if subject.is_torch else "")
    if subject.replayed > MOST_REPLAYED:
        return _GRAPHS
    if largest.ns > LAUNCH_NS * largest.count:
        gaps = (
            _LONGEST.format(ms(largest.longest_ns))
            if _is_one_gap(largest)
            else _LONG.format(ms(largest.ns / largest.count))
        )
        name, ns = largest.during[0] if largest.during else ("", 0)
        if ns >= DECIDES * largest.ns:
            return _IN_CALL.format(gaps=gaps, name=name)
        return _PROGRAM.format(gaps=gaps, how=_how_to_see(subject))
    fuse = "graphs" if subject.is_compiled else "torch.compile, graphs"
    return _LAUNCH_LESS.format(how=fuse if subject.is_torch else "fusion, hipGraph")


def _how_to_see(subject: Subject) -> str:
    """How to see what the program does between its launches."""
    if not subject.is_torch:
        return ""
    return "; --host-calls draws its functions" if subject.has_stacks else "; with_stack=True records it"


def _busiest(step: StepTime) -> tuple[list[Window], Window]:
    """Return the steps that are idle for more than `IDLE`, and the step with the most idle time."""
    known = [(window, window.busy) for window in step.windows if window.busy is not None]
    idle = [window for window, busy in known if busy.idle_ns > IDLE * busy.length_ns]
    return idle, max(known, key=lambda one: one[1].idle_ns)[0]


def _idle(subject: Subject) -> Iterator[Found]:
    timed = subject.timed
    step = timed.step_time
    if step is None or step.idle_ns <= IDLE * step.step_ns or timed.is_capture:
        return
    number = len(step.windows)
    told = timed.steady.told
    without = ", measured without MIOpen's log" if timed is not subject else ""
    causes = "; ".join(
        cause(one, number, is_filtered=timed.is_filtered)
        for one in timed.causes
        if one.ns >= SHOWN * timed.causes[0].ns
    )
    sentences = [
        f"{percent(step.idle_ns / step.step_ns)} of {timed.noun} ({part_of(step.idle_ns, step.step_ns)}{without}):"
        f" {causes}."
    ]
    advice = _advice(timed, timed.causes[0]) if timed.causes else ""
    severity: Severity | None = None
    idle, longest = _busiest(step)
    if timed.lacks_work:
        lost = timed.lost_launches
        advice, severity = _LOST.format(part=percent(lost)) if lost >= MOST_LOST else _FILTERED, "low"
    elif 2 * len(idle) < number:
        sentences.append(f"Only {len(idle)} of {number} steps have much of it.")
        advice, severity = _FEW.format(number=told.all[longest.place].number), "low"
    yield Found(
        ns=step.idle_ns,
        share=step.idle_ns / step.step_ns,
        count=round(sum(one.count for one in timed.causes) / number),
        number=" ".join(sentences),
        names=tuple(one.during[0][0] for one in timed.causes if one.during),
        advice=advice,
        severity=severity,
    )


RULES = (
    Rule(
        id="idle",
        title="GPU idle.",
        fires="the slowest device runs nothing for > 15 % of its steady iterations. It never fires for dv/dt profiles,"
        " because dv/dt waits for each command, or for captures of graphs (`capture`). It is low if fewer than half of"
        " the iterations are idle, if 10 % of the launches have no kernel in the profile, or if rows were filtered out"
        " of the file",
        formula="time in gaps between commands, per steady iteration; share of the iteration's length. If"
        " `record --reference` recorded a run without MIOpen's log, that run is measured. Gaps in which the device did"
        " work that was not recorded are not idle time. Each gap has one of five causes: host-bound, program"
        " builds, queued, unknown, short (docs/glossary.md defines them). The finding names the host call, op, range or"
        " Python function that takes the largest part of a cause, if that is at least 10 % of it, and the source line"
        " of the launch that ended most of these gaps. If one gap holds most of the time, the finding says so",
        advice="by the largest cause of this run. If calls of one kind take a third of it: remove the call that waits"
        " (synchronisation, .item(), blocking copy, allocation, data loading). Builds: warm up. Queued: look for what"
        " the work waits for. Short gaps between launches: launch less (fusion, torch.compile, graphs, larger batches)."
        " Long gaps: look at what the host does in them.",
        find=_idle,
    ),
)
