"""Rules on time without computation, and on time that varies: idle, communication, copies that run alone, first
iterations, spread.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mio2trace.align import NONE
from mio2trace.findings.rule import RECORDING, Found, Rule, Severity, add_rule, at_most_medium, ms, percent, severity_of
from mio2trace.findings.subject import MOST_LOST, Problem, Subject
from mio2trace.kernels.names import normalise
from mio2trace.measures.cost import Bandwidth, bandwidth
from mio2trace.measures.device_time import Busy, Covered, Exposed, Window, class_of_kernel, exposed_copies
from mio2trace.measures.gaps import WAITS, Cause
from mio2trace.measures.iterations import StepTime
from mio2trace.measures.statistics import deviation, mean, median
from mio2trace.ops.families.collective import kind_of
from mio2trace.ops.operation import Operation
from mio2trace.outgoing import count
from mio2trace.patterns import late

RULES: list[Rule] = []
rule = partial(add_rule, RULES)

# -- Idle time, and the advice that fits its largest cause in a run ----------------------------------------------------

IDLE = 0.15
SHOWN = 0.05
"""The sentence names a second cause if it has at least this part of the time of the largest one."""
WORTH_NAMING = 0.1
"""The sentence names a host call if it has at least this part of a cause."""
DECIDES = 1 / 3
"""The advice is about one kind of host call if its calls have at least this part of a cause."""
LAUNCH_NS = 200_000
"""If the mean gap is at most this long, the host launches one command after another; in longer gaps it does something
else."""
_WHY = {
    "host": "host-bound",
    "builds": "program builds",
    "queued": "queued",
    "unknown": "of unknown cause (no calls recorded)",
    "short": "gaps of up to 1 us",
}
_ALLOCATES = "The host allocates memory in the step: allocate before the step, or use a caching allocator."
_TORCH_ALLOCATES = (
    "PyTorch's memory cache still grows in this step: record after more warm-up steps. If it never stops, shapes change"
    " or memory is short."
)
_FORMS = (
    (
        late(r"aten::(?:item|_local_scalar_dense|is_nonzero)", re.ASCII),
        "The host waits for a value of the GPU: move .item(), bool() and print of a tensor out of the step.",
    ),
    (
        WAITS,
        "The host waits for results before it launches the next step: call block_until_ready once after several steps.",
    ),
    (
        late(r"(?:hip|cuda)(?:Device|Stream|Event)Synchronize|clFinish", re.ASCII),
        "The host waits for the GPU: remove this synchronisation from the step.",
    ),
    (
        late(r"(?:hip|cuda)Memcpy(?!\w{0,24}Async)", re.ASCII),
        "The copy blocks the host: use pinned memory and an asynchronous copy{torch}.",
    ),
    (
        late(r"(?:hip|cuda)(?:Ext)?(?:Host)?(?:Malloc|Free|Alloc)", re.ASCII),
        _ALLOCATES,
    ),
    (
        late(r"SingleProcessDataLoader", re.ASCII),
        "The step loads its data itself: let workers do it during the step (DataLoader(num_workers=4)).",
    ),
    (
        late(r"dataloader", re.ASCII | re.IGNORECASE),
        "The step waits for the loader's workers: use more of them, or do less work for each sample.",
    ),
)
LEAST_IDLE_NS = 1_000_000
"""Without marked steps, less idle time is no finding: a recording of a few kernels shows nothing about a program."""
_BUILDS = "Programs are built or loaded in the step: run a warm-up before you measure."
_BUILDS_ALONE = "Programs are built or loaded in this time: run a warm-up, and record after it."
_NO_STEPS = "No steps are known, so this may be start-up: {how}."
_KEEP_CACHE = " Keep MIOpen's kernel cache between runs (MIOPEN_CUSTOM_CACHE_DIR)."
_ONE_STEP = (
    "Record several steps after a warm-up: the only complete step may include one-time work (builds, allocations)."
)
_PART = "Record several complete steps: this recording begins or ends within the step."
_QUEUED = "The host launched the work in time: look for what it waits for (events between streams, copies, processes)."
_TO_NODES = (
    "The gaps are between nodes of one graph launch, which wait only for each other: measure the step without the"
    " profiler, which may make such gaps or lose nodes."
)
_TO_GRAPHS = (
    "The graphs were launched in time, but their first recorded nodes start late: the profiler may have lost nodes, or"
    " the graphs wait for another stream or process. Compare the kernels per step with a run without graphs."
)
_NO_CALLS = "Record the host's calls to see the cause{how}."
_GRAPHS = "Graphs already launch the step: look at what the host does between two graph launches."
_LAUNCH_LESS = "The host launches too slowly: launch fewer, larger kernels ({how}) or use larger batches."
_STACKS = " Recording stacks slows the host: compare without with_stack."
_LONG, _LONGEST = "The gaps are long ({} on average)", "The longest gap takes {}"
_PROGRAM = "{gaps}, in no recorded call: look at what the program does there (input data, its own code){how}."
_SHORT_WORK = late(r"aten::|(?:hip|cuda|cu)[A-Z]", re.ASCII)
"""Ops and calls that wait for nothing (`_FORMS` has those that do): the host needs some microseconds for each."""
_SPREAD = (
    "{gaps}, in ops and calls of many kinds: look at the host's processor (cores of the process, other processes,"
    " Python threads)."
)
_IN_CALL = "{gaps}: look at why the host is in {name} for so long."
_FEW = (
    "Look at iteration {number}, which is idle for longest; most steps are busy. --iterations {number} -o out.pftrace"
    " shows it."
)
_LOST = "Record the run again, completely: {part} of the launches have no kernel here, so these gaps may be work."
_FILTERED = "Use the whole file of the profiler: rows were filtered out of this one, so these gaps may be work."
MOST_REPLAYED = 0.5
""""Use graphs" is no advice if graphs launch at least this part of the kernel time."""


def cause(one: Cause, count_: int, *, is_filtered: bool = False, longest: bool = False) -> str:
    """Return ``0.42 ms host-bound (0.31 ms of it in aten::mm at train.py:12) in 12 gaps``. ``count_``: the number of
    iterations. ``is_filtered``: rows were filtered out, so a gap may be work. ``longest``: with the longest gap, also
    if it does not have most of the time."""
    if one.why == "short":
        return f"{ms(one.ns / count_)} in {_WHY[one.why]}"
    name, ns = one.during[0] if one.during else ("", 0)
    gaps = count(max(1, round(one.count / count_)), "gap")
    why = "queued, or work that was filtered out," if is_filtered and one.why == "queued" else _WHY[one.why]
    in_one = one.count > 1 and _is_one_gap(one)
    most = f", the longest {ms(one.longest_ns)}" if in_one or (longest and one.count > 1) else ""
    if most and one.longest_ns > one.ns / count_:  # longer than the mean over the iterations
        most += " in one iteration"
    if not name or ns < WORTH_NAMING * one.ns:
        return f"{ms(one.ns / count_)} {why} in {gaps}{most}"
    at = f" at {one.line}" if one.line else ""
    where = ""
    if in_one and name == one.longest_during and ns == one.longest_during_ns:
        where, most = " in one gap,", ""
    return f"{ms(one.ns / count_)} {why} ({ms(ns / count_)} of it{where} in {name}{at}) in {gaps}{most}"


def _is_one_gap(one: Cause) -> bool:
    """Return whether one gap has most of the time."""
    return 2 * one.longest_ns > one.ns


def _of_calls(largest: Cause) -> str:
    """Return the advice about the kind of host call with the most time of a cause; empty if none has a third of it."""
    by_form: Counter[str] = Counter()
    for name, ns in largest.during:
        by_form[next((text for form, text in _FORMS if form.search(name)), "")] += ns
    del by_form[""]
    text, ns = by_form.most_common(1)[0] if by_form else ("", 0)
    return text if ns >= DECIDES * largest.ns else ""


def _advice(subject: Subject, largest: Cause) -> str:
    """Return the advice for the largest cause of idle time in this run."""
    told, has_steps = subject.steady.told, subject.step_time is not None
    if told.part and has_steps:
        return _PART
    if told.may_be_cold and has_steps:
        return _ONE_STEP
    if largest.why == "builds":
        return (_BUILDS if has_steps else _BUILDS_ALONE) + _KEEP_CACHE * subject.uses_miopen
    if largest.why == "queued":
        return _of_graphs(largest) or _QUEUED
    if not has_steps:  # start-up may be in the recording
        return _NO_STEPS.format(how=subject.recorded_anew(calls=largest.why == "unknown"))
    if largest.why == "unknown":
        by_rocprofv3 = subject.profile.numbers == "dispatch_id"
        by_torch = ": the PyTorch profiler's CPU activity" * subject.is_torch
        return _NO_CALLS.format(how=": rocprofv3 --hip-trace" if by_rocprofv3 else by_torch)
    of_calls, has_stacks = _of_calls(largest), subject.is_torch and subject.profile.has_stacks
    if of_calls == _ALLOCATES and subject.is_torch:
        return _TORCH_ALLOCATES
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
        if sum(ns for name, ns in largest.during if _SHORT_WORK.match(name)) >= DECIDES * largest.ns:
            return _SPREAD.format(gaps=gaps) + _STACKS * has_stacks
        draws = "--host-calls all draws its functions (a bundle has none)"
        see = f"; {draws if has_stacks else 'with_stack=True records it'}"
        return _PROGRAM.format(gaps=gaps, how=see * subject.is_torch)
    return _LAUNCH_LESS.format(how=_how_to_launch_less(subject)) + _STACKS * has_stacks


def _how_to_launch_less(subject: Subject) -> str:
    """By what this program can launch fewer kernels."""
    if subject.is_xla:
        if not subject.jitted:
            return "tf.function(jit_compile=True)"
        return "one jax.jit for the whole step" if len(subject.jitted) > 1 else "several steps in a jax.lax.scan"
    if subject.is_torch:
        return "graphs" if subject.is_compiled else "torch.compile, graphs"
    return "fusion, graphs"


def _of_graphs(one: Cause) -> str:
    """Return the advice about queued gaps if most of their time is before nodes of graphs, else an empty text."""
    if 2 * one.to_nodes_ns > one.ns:
        return _TO_NODES
    return _TO_GRAPHS if 2 * (one.to_nodes_ns + one.to_graphs_ns) > one.ns else ""


def _busiest(step: StepTime) -> tuple[list[Window], Window]:
    """Return the steps that are idle for more than `IDLE`, and the step with the most idle time."""
    known = [(window, window.busy) for window in step.windows if window.busy is not None]
    idle = [window for window, busy in known if busy.idle_ns > IDLE * busy.length_ns]
    return idle, max(known, key=lambda one: one[1].idle_ns)[0]


@rule(
    id="idle",
    title="GPU idle.",
    fires="the slowest device runs nothing for > 15 % of its steady iterations. Without iterations: for > 15 % of"
    " the recording. Without iterations, or if only the repetition of kernels shows them: for at least 1 ms in all."
    " It never fires for captures of graphs (`capture`), for runs with hardware counters (`counter-run`), or for"
    " dv/dt profiles, because dv/dt waits for each command. It is low if fewer than half of the iterations are idle"
    " for > 15 %. It is also low if the gaps may be work: at least 10 % of the launches have no kernel in the"
    " profile, or rows were filtered out of the file. It is at most medium if most of the idle time is queued"
    " before nodes of graphs",
    advice="by the largest cause of this run. If calls of one kind have a third of the time of that cause:"
    " remove the call that waits (synchronisation, .item(), blocking copy), use more loader workers, or"
    " allocate before the step. PyTorch caches memory: warm up for longer, or look for changing shapes and"
    " short memory. Builds: warm up. Queued: look for what the work waits for. Queued before nodes of"
    " graphs: measure without the profiler, which may make these gaps or lose nodes. Short gaps between"
    " launches: launch less (fusion, torch.compile, graphs, one jax.jit for the whole step, a scan of"
    " steps, larger batches). Long gaps: look at what the host does in them; at its processor, if it is in"
    " many ops and calls that wait for nothing. If PyTorch recorded stacks, which slows the host, compare"
    " with a recording without them. Only one step, which may be cold: record several steps after a"
    " warm-up. Without iterations the gaps may be start-up: record steps after a warm-up.",
)
def _idle(subject: Subject) -> Iterator[Found]:
    timed = subject.timed
    step, spent = timed.step_time, timed.spent
    if spent is None or spent.idle_ns <= IDLE * spent.length_ns or timed.is_capture or timed.has_counters:
        return
    number = 1 if step is None else len(step.windows)
    told = timed.steady.told
    if told.told_by != "named" and spent.idle_ns * number < LEAST_IDLE_NS:
        return
    without = ", measured without MIOpen's log" if timed is not subject else ""
    causes = "; ".join(
        cause(one, number, is_filtered=timed.is_filtered, longest=step is None)
        for one in timed.causes
        if one.ns >= SHOWN * timed.causes[0].ns
    )
    sentences = [f"{timed.of_spent(spent.idle_ns, without)}: {causes}."]
    advice = _advice(timed, timed.causes[0]) if timed.causes else ""
    # The profiler itself may make such gaps, or lose the work in them.
    severity: Severity | None = "medium" if timed.causes and _of_graphs(timed.causes[0]) else None
    if timed.lacks_work:
        lost = timed.lost_launches
        advice, severity = _LOST.format(part=percent(lost)) if lost >= MOST_LOST else _FILTERED, "low"
    elif step is not None:
        idle, longest = _busiest(step)
        if 2 * len(idle) < number:
            are = "is" if len(idle) == 1 else "are"
            of = count(number, "step") + (" of known length" if number < timed.count else "")
            sentences.append(f"Only {len(idle)} of {of} {are} idle for more than {percent(IDLE)}.")
            advice, severity = _FEW.format(number=told.all[longest.place].number), "low"
    yield Found(
        ns=spent.idle_ns,
        share=spent.idle_ns / spent.length_ns,
        count=round(sum(one.count for one in timed.causes) / number),
        number=" ".join(sentences),
        names=tuple(one.during[0][0] for one in timed.causes if one.during),
        advice=advice,
        severity=severity,
    )


# -- Communication, first iterations, spread ---------------------------------------------------------------------------

COMMUNICATION = 0.10
RUNS, SLOWER = 3, 2.0
WORTH_SAYING = 0.01
SAMPLES, SPREAD, OF_T = 10, 0.3, 0.05
WAITING_GBPS, LARGE_BYTES = 10.0, 1 << 20
"""A collective of at least ``LARGE_BYTES`` below ``WAITING_GBPS`` GB/s waits for other ranks, or the network is
slow."""
WAITS_FOR_OTHERS = 10.0
"""Collectives this many times longer than the median wait for other ranks, if they have most of the time."""
_OF_RANKS = "balance what ranks hold (shards, experts), or send less"
OVERLAPPED = 0.1
"""The run overlaps its collectives already if other kernels run during at least this part of their time."""


@rule(
    id="communication",
    title="Collectives run alone.",
    fires="exposed communication is > 10 % of a steady iteration of the slowest device; without iterations, of the"
    " recording. It never fires if rows were filtered out of the file and no computation is left",
)
def _communication(subject: Subject) -> Iterator[Found]:
    spent = subject.timed.spent
    if spent is None or spent.communication_ns <= COMMUNICATION * spent.length_ns:
        return
    if subject.timed.is_filtered and not spent.compute_ns:
        return
    named = []
    rates: dict[str, Bandwidth] = {}
    took = _unnamed_collectives(subject)
    texts = {name: f"{name} (total {subject.time(ns)})" for name, ns in took.items()}
    kinds = {name: "" if "SendRecv" in name else kind_of(name) for name in took}  # NCCL's all-to-all is one, too
    for problem in subject.problems:
        own = problem.operation.problem
        if own is not None and own.collective:
            rate = bandwidth(problem.operation, problem.row.calls, problem.ns)
            bus = f", {rate.bus:.3g} GB/s on the bus" if rate is not None and rate.bus is not None else ""
            if rate is not None:
                rates[problem.name] = rate
            named.append(problem.name)
            kinds[problem.name] = own.collective
            took[problem.name] = problem.ns
            texts[problem.name] = f"{problem.at_line} (total {subject.time(problem.ns)}{bus})"
    all_ns = sum(_collectives(subject))
    took[""] = max(0, all_ns - sum(took.values()))  # of operations that are no collectives
    longest = max(took, key=took.__getitem__)
    doubt, severity = _beside_unrecorded(subject.timed, spent.communication_ns)
    how = "most in" if 2 * took[longest] > all_ns else "the longest:"
    yield Found(
        ns=spent.communication_ns,
        share=spent.communication_ns / spent.length_ns,
        count=len(named) or 1,
        number=f"{subject.timed.of_spent(spent.communication_ns)} runs only collectives"
        f"{f'; {how} {texts[longest]}' if longest else ''}.{doubt}",
        scope=tuple(named),
        advice=_communicate(subject.timed, spent, rates.get(longest), kinds.get(longest, "")),
        severity=severity,
    )


def _beside_unrecorded(subject: Subject, ns: int) -> tuple[str, Severity | None]:
    """Return a sentence and a severity for ``ns`` that may not be exposed, because more work was not recorded; neither
    if this is not so."""
    spent = subject.spent
    if spent is None or spent.unrecorded_ns <= ns:
        return "", None
    lost = percent(spent.unrecorded_ns / spent.length_ns)
    noun = RECORDING if subject.step_time is None else subject.noun
    own = severity_of(ns / spent.length_ns)
    return f" {lost} of {noun} was not recorded: kernels may run beside them.", "medium" if own == "high" else own


def _unnamed_collectives(subject: Subject) -> Counter[str]:
    """Return the time of the collective kernels of the slowest device in no operation, by kernel name."""
    profile, counted = subject.profile, subject.steady.counted
    operation_of = np.asarray(subject.alignment.links.operation_of)
    is_unnamed = (_are_collectives(subject) & (operation_of == NONE))[counted.kernels]
    took: Counter[str] = Counter()
    names = profile.commands.name
    for code, ns in zip(
        names.codes[counted.kernels[is_unnamed]].tolist(), counted.ns[is_unnamed].tolist(), strict=True
    ):
        took[normalise(names.values[code])[:60]] += ns
    return took


def _communicate(subject: Subject, spent: StepTime | Busy, slowest: Bandwidth | None, kind: str) -> str:
    """Return the advice against exposed communication in this run. ``slowest``, ``kind``: the rate and the kind of the
    longest collective, as far as known."""
    ranks = "`mio2trace ranks JOB` shows which rank comes last."
    if kind in ("send", "recv"):
        return (
            "A rank waits for its neighbour. In a pipeline: use more micro-batches, or an interleaved schedule. In a"
            " ring: send the next part during computation."
        )
    anew = "" if subject.has_all_ranks else "Record all ranks; "
    bus = slowest.bus if slowest is not None and slowest.message_bytes >= LARGE_BYTES else None
    if bus is not None and bus < WAITING_GBPS:
        return (
            f"{bus:.3g} GB/s is slow for a GPU link: ranks wait for each other, or the network is slow. {anew}{ranks}"
        )
    if subject.step_time is None:
        times = _collectives(subject)
        usual = median(times) if times else 0.0
        slow = [ns for ns in times if ns > WAITS_FOR_OTHERS * usual]
        if 2 * sum(slow) > sum(times):
            return (
                f"The longest of {count(len(times), 'collective')} takes {ms(max(times))}, the median {ms(usual)}:"
                f" ranks may wait, as in start-up. Record {'them' if subject.has_all_ranks else 'all ranks'} after a"
                f" warm-up; {ranks}"
            )
    hidden = _hidden(subject, spent)
    already = f"{percent(hidden)} of the collectives' time is overlapped already: " if hidden >= OVERLAPPED else ""
    if kind == "alltoall":
        return f"{already or 'Overlap it with another part of the batch, '}{_OF_RANKS}. {ranks}"
    if subject.infers:
        return (
            "No backward pass is recorded: layers of tensor parallelism wait for these. Send less (a smaller type), or"
            f" use fewer ranks for each model. {ranks}"
        )
    if already:
        return f"{already}send less (a smaller type, gradient accumulation), or wait less: {ranks}"
    return f"Overlap collectives with computation (DDP's buckets, FSDP's prefetch), or send less. {ranks}"


def _hidden(subject: Subject, spent: StepTime | Busy) -> float:
    """Return the part of the time with collectives in which computation also runs. Collectives may overlap."""
    commands, spans = subject.profile.commands, subject.steady.spans
    rows = _are_collectives(subject) & commands.has_times
    covered = Covered(commands.start_ns[rows], commands.end_ns[rows])
    together = sum(covered.within(*span) for span in spans)
    return 1 - len(spans) * spent.communication_ns / together if together else 0.0


def _collectives(subject: Subject) -> list[int]:
    """Return the time of each collective of the slowest device."""
    counted = subject.steady.counted
    times: list[int] = counted.ns[_are_collectives(subject)[counted.kernels]].tolist()
    return times


def _are_collectives(subject: Subject) -> NDArray[np.bool_]:
    """Which commands are collectives of the slowest device."""
    profile, device = subject.profile, subject.steady.device
    own = [queue.index for queue in profile.queues if device is not None and queue.device == device.device]
    is_collective = profile.commands.name.where(lambda name: class_of_kernel(name) == "communication")
    return is_collective & np.isin(profile.commands.queue, own)


@rule(
    id="first-iteration",
    title="First runs are slow.",
    fires="the first iteration took > 2 x the median of >= 2 steady iterations, and longer than 95 % of them. One"
    " steady iteration is enough if only the first iteration builds or loads programs. Otherwise: a problem has"
    " >= 3 calls, and its first call took > 2 x the median of the others. It is medium at most, because it happens"
    " once",
)
def _first(subject: Subject) -> Iterator[Found]:
    first = subject.first_iteration
    enough = len(subject.steady.told.steady) >= RUNS - 1 or subject.first_builds
    if first is None or not enough or first[0] <= SLOWER * first[1] or subject.first_is_usual:
        yield from _first_calls(subject)
        return
    cold, usual, recorded, steady = first
    excess = cold - usual
    parts = [f"{ms(ns)} {what}" for what, ns in subject.first_prepared.items() if ns >= WORTH_SAYING * excess]
    yield Found(
        ns=excess,
        share=excess / recorded,
        count=1,
        number=f"The first iteration took {ms(cold)}, a steady one {ms(usual)}{' (median)' * (steady > 1)}:"
        f" {ms(excess)} more, once ({percent(excess / recorded)} of the time of these {1 + steady:,} iterations)"
        f"{': ' if parts else ''}{', '.join(parts)}.",
        severity=at_most_medium(excess / recorded),
        advice=_warm_up(subject),
    )


_ONE_ITERATION = "Record several iterations after a warm-up: the only one includes these first calls."


def _warm_up(subject: Subject) -> str:
    """Say how to shorten the first iteration of this run."""
    first = subject.cold[0]
    steady = "No number per iteration includes it: run a warm-up before you measure."
    if first.searches:
        return f"MIOpen Find ran in it. {steady} Keep the user find-db between runs (MIOPEN_USER_DB_PATH)."
    if first.builds and subject.uses_miopen:
        return (
            f"It built or loaded programs. {steady} Keep MIOpen's kernel cache between runs"
            " (MIOPEN_CUSTOM_CACHE_DIR on a disk that stays)."
        )
    return f"It built or loaded programs. {steady}" if first.builds else steady


def _first_calls(subject: Subject) -> Iterator[Found]:
    """Compare the first call of each problem with its later calls, if the iterations show no warm-up."""
    excess = _first_calls_by_problem(subject)
    ns, iterations = sum(excess.values()), sum(one.step_ns or 0 for one in subject.steady.told.all)
    whole = iterations or sum(cost_ns for _, cost_ns in _calls(subject))
    recorded = f"the time of all {'iterations' if iterations else 'calls'}"
    if ns:
        name = next(iter(excess))
        yield Found(
            ns=round(ns),
            share=ns / whole,
            count=len(excess),
            number=f"The first call of {count(len(excess), 'problem')} took more than twice the usual time:"
            f" {ms(ns)} more, once ({percent(ns / whole)} of {recorded}), most of it in {name} ({ms(excess[name])}).",
            scope=tuple(excess),
            severity=at_most_medium(ns / whole),
            advice=_ONE_ITERATION if subject.steady.told.may_be_cold else "Run a warm-up before you measure.",
        )


def _first_calls_by_problem(subject: Subject) -> dict[str, float]:
    """Return how much longer each first call took than the median of the others, if it took more than twice that
    median; longest first."""
    runs: dict[str, list[int]] = {}
    problem_of = subject.steady.problem_of
    for index, ns in _calls(subject):
        runs.setdefault(problem_of[index], []).append(ns)
    excess = {
        name: times[0] - median(times[1:])
        for name, times in runs.items()
        if len(times) >= RUNS and times[0] > SLOWER * median(times[1:])
    }
    return dict(sorted(excess.items(), key=lambda item: (-item[1], item[0])))


def _calls(subject: Subject) -> list[tuple[int, int]]:
    """Return index and time of each operation with kernels, in order; the time is that of the host if all have it. Ops
    without a family are left out: their arguments do not determine their time."""
    measures = subject.measures
    ran = [
        index
        for index, one in measures.operation_at.items()
        if one.phase == "run" and measures.first_of[index] != NONE and _takes_its_own_time(one)
    ]
    on_host = [host_ns for index in ran if (host_ns := measures.host_ns(index)) is not None]
    if len(on_host) == len(ran):
        return [*zip(ran, on_host, strict=True)]
    return [(index, measures.operations.timed_ns[index]) for index in ran]


def _takes_its_own_time(operation: Operation) -> bool:
    """Return whether the problem determines the time of the operation. A name without sizes may be several problems; a
    collective also waits for other ranks."""
    problem = operation.problem
    has_sizes = bool(operation.input) or operation.gemm is not None
    return has_sizes and not operation.is_plain and (problem is None or problem.message_bytes() is None)


@rule(
    id="unsteady",
    title="The time of one problem changes.",
    fires=">= 10 calls in steady iterations, standard deviation > 30 % of the mean, >= 5 % of T; only if the sizes"
    " of the problem are known",
)
def _unsteady(subject: Subject) -> Iterator[Found]:
    found: list[tuple[float, Problem, str]] = []
    for problem in subject.problems:
        times = problem.samples
        if len(times) < SAMPLES or subject.share(problem.ns) < OF_T or not _takes_its_own_time(problem.operation):
            continue
        spread = (deviation(times) or 0.0) / (mean(times) or 1)
        if spread > SPREAD:
            usual = median(times)
            over = sum(max(0, ns - usual) for ns in times)
            said = (
                f"{problem.at_line}: {ms(min(times))} to {ms(max(times))}, median {ms(usual)}, in"
                f" {count(len(times), 'call')} (standard deviation {percent(spread)} of the mean)."
            )
            found.append((over, problem, said))
    if found:
        found.sort(key=lambda one: -one[0])
        over = sum(ns for ns, _, _ in found)
        yield subject.found_in(
            [problem for _, problem, _ in found],
            over,
            number=found[0][2],
            advice=_CHANGES.format(tool="nvidia-smi" if subject.profile.is_nvidia else "rocm-smi"),
        )


_CHANGES = (
    "Look at clocks and power ({tool}), at other programs on the device, and at kernels that run at the same time on"
    " other streams. Report medians."
)


COPIES = 0.05
SHOWN_DIRECTION = 0.1
"""The sentence names a direction if it has at least this part of the time of the first one."""
LEAST_SPEED = 0.01
"""GB/s: below it a copy's time is not that of its bytes, and the number says nothing."""
MOSTLY = 0.5
"""Copies block the host if the calls of this part of their time do. Copies of pageable memory block it in any call."""
_OF_BUCKETS = "copy_bucket_to_grad"
"""In the name of the range in which PyTorch's DDP copies gradients from its buckets."""
_ONCE = "if this is no one-time load, "
_BESIDE = "so that kernels run meanwhile"
_ASYNCHRONOUS = f"the copies do not block the host: issue them earlier, on another stream, {_BESIDE}"
_OTHERS = f"find the calls that copy (`-o out.pftrace` draws them). Copy less, or on another stream, {_BESIDE}"


@rule(
    id="copies",
    title="Copies run alone.",
    fires="exposed copies and fills are > 5 % of a steady iteration of the slowest device; without iterations, of"
    " the recording. It never fires for captures of graphs, or if hardware counters were collected",
)
def _copies(subject: Subject) -> Iterator[Found]:
    timed = subject.timed
    spent, device = timed.spent, timed.steady.device
    if spent is None or device is None or spent.copy_ns <= COPIES * spent.length_ns:
        return
    if timed.is_capture or timed.has_counters:
        return
    spans = timed.steady.spans
    found = exposed_copies(timed.alignment, device.device, spans)
    doubt, severity = _beside_unrecorded(timed, spent.copy_ns)
    said = [_direction(one, len(spans)) for one in found if one.ns >= SHOWN_DIRECTION * found[0].ns]
    advice = _copy_advice(timed, found[0])
    yield Found(
        ns=spent.copy_ns,
        share=spent.copy_ns / spent.length_ns,
        count=round(sum(one.count for one in found) / len(spans)),
        number=f"{timed.of_spent(spent.copy_ns)} runs only copies: {'; '.join(said)}.{doubt}",
        advice=f"{advice[0].upper()}{advice[1:]}.",
        scope=tuple(one.direction for one in found),
        severity=severity,
    )


def _direction(one: Exposed, number: int) -> str:
    """Return ``885.7 ms device to host (1 copy, 4.52 GB/s)``. ``number``: of steps.

    The rate names its part of the copies' time if the sizes of some are unknown.
    """
    noun = one.direction if one.direction in ("copy kernels", "fills") else ""
    copies = max(1, round(one.count / number))
    speed = one.bytes / one.bytes_ns if one.bytes_ns else 0
    rate = f", {f'{speed:.3g}' if speed >= LEAST_SPEED else f'under {LEAST_SPEED}'} GB/s" if one.bytes_ns else ""
    if rate and one.sized < 1:
        rate += f" in {percent(one.sized)} of their time, sizes of the rest unknown"
    if noun:
        return f"{ms(one.ns / number)} in {count(copies, noun.removesuffix('s'))}{rate}"
    where = "" if one.direction == "copies" else f" {one.direction}"
    memory = "" if one.pageable is None else ", pageable" if one.pageable >= MOSTLY else ", pinned"
    return f"{ms(one.ns / number)}{where} ({count(copies, 'copy')}{memory}{rate})"


def _copy_advice(subject: Subject, longest: Exposed) -> str:
    """Return the advice about the direction with most exposed time, without its full stop."""
    api = "cuda" if subject.profile.is_nvidia else "hip"
    once = _ONCE if subject.step_time is None else ""
    is_pageable = longest.pageable is not None and longest.pageable >= MOSTLY
    is_async = longest.blocking is not None and longest.blocking < MOSTLY and not is_pageable
    if longest.direction == "host to device":
        if is_async:
            return once + _ASYNCHRONOUS
        if subject.is_torch:
            return (
                f"{once}load inputs while kernels run: DataLoader(pin_memory=True) and .to(device, non_blocking=True)"
            )
        return f"{once}use pinned memory and {api}MemcpyAsync on another stream, {_BESIDE}"
    if longest.direction == "device to host":
        is_large = longest.bytes >= LARGE_BYTES * longest.count
        if subject.is_torch and is_large and not is_async:
            return (
                "copy only what the host needs, to pinned memory (torch.empty(..., pin_memory=True).copy_(x,"
                f" non_blocking=True)), {_BESIDE}"
            )
        if subject.is_torch and not is_large:
            return "read results less often (.item(), .cpu(), print): collect them on the GPU, and copy them together"
        if is_async:
            return _ASYNCHRONOUS
        if 0 < longest.bytes < LARGE_BYTES * longest.count:
            return "read results less often: each of these copies is small, so copy them together"
        return f"copy only what the host needs, to pinned memory and with {api}MemcpyAsync on another stream, {_BESIDE}"
    if longest.direction == "device to device":
        if any(_OF_BUCKETS in text for text in subject.texts):
            return "DDP copies gradients from its buckets: DistributedDataParallel(..., gradient_as_bucket_view=True)"
        how = " (clone(), contiguous(), cat())" * subject.is_torch
        return f"write data where it is needed: these copies{how} only move it within the GPU's memory"
    if longest.direction == "fills":
        return "do not set memory to zero again and again, unless its content is read before it is written"
    return _OTHERS
