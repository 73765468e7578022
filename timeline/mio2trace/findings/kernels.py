"""Rules on kernels: naive solvers, layouts, casts, auxiliary kernels, short kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mio2trace.align import NONE
from mio2trace.findings.rule import SEVERITIES, Found, Rule, Severity, count, percent, severity_of
from mio2trace.findings.subject import Subject
from mio2trace.ops.naming import problem_name

OF_CONVOLUTIONS, MANY_OF_CONVOLUTIONS = 0.10, 0.20
CASTS, HELPERS = 0.02, 0.10
MANY_SHORT, SHORT_BY_COUNT, SHORT_BY_TIME = 20, 0.50, 0.05
HOST_BOUND = 0.15
"""Part of the step in which the GPU waits for the host, from which on launches limit short kernels."""
IN_GRAPHS = 0.5
"""Part of the kernel time that graphs launch, from which on "use graphs" is no advice."""
_NO_HELPERS = frozenset(("transpose", "cast", "statistics"))
"""Roles with a rule of their own, and the means and variances of a normalisation, which are half of its work."""


def _naive(subject: Subject) -> Iterator[Found]:
    naive = subject.makeup.naive
    ns = naive.total()
    if not ns:
        return
    by_problem: Counter[str] = Counter()
    drivers: dict[str, str] = {}
    for index, time in naive.items():
        if index != NONE:
            operation = subject.measures.operation_at[index]
            name = problem_name(operation)
            by_problem[name] += time
            if operation.command:
                drivers[name] = operation.command
    names = [name for name, _ in sorted(by_problem.items(), key=lambda item: (-item[1], item[0]))]
    calls = sum(index != NONE for index in naive)
    yield Found(
        ns=subject.each(ns),
        share=subject.share(ns),
        count=calls,
        number=f"{subject.time(ns)}, {percent(subject.share(ns))} of the kernel time, in"
        f" {count(len(names), 'problem')}.",
        scope=tuple(names),
        drivers=tuple(drivers[name] for name in names if name in drivers),
    )


def _transposes(subject: Subject) -> Iterator[Found]:
    parts = subject.makeup.parts
    of_convolutions = sum(ns for (primitive, _, _), ns in parts.items() if primitive == "conv")
    ns = sum(ns for (primitive, role, _), ns in parts.items() if primitive == "conv" and role == "transpose")
    of_all = severity_of(subject.share(ns))
    if ns and ns >= OF_CONVOLUTIONS * of_convolutions and of_all is not None:
        part = ns / of_convolutions
        of_these: Severity = "high" if part >= MANY_OF_CONVOLUTIONS else "medium"
        yield Found(
            ns=subject.each(ns),
            share=subject.share(ns),
            count=1,
            number=f"{subject.time(ns)}, {percent(part)} of the time of convolutions.",
            severity=max(of_all, of_these, key=SEVERITIES.index),
            advice=_layout(subject),
        )


def _layout(subject: Subject) -> str:
    """What avoids transposes in this run: NHWC only if its convolutions do not use it already."""
    by_layout: Counter[str] = Counter()
    for problem in subject.problems:
        if problem.operation.primitive == "conv":
            by_layout[problem.operation.layout or ""] += problem.ns
    if by_layout and by_layout.most_common(1)[0][0].endswith("C"):
        return "Tensors are NHWC already: compare solvers with the driver line, because this one transposes."
    how = "memory_format=torch.channels_last" + ", PYTORCH_MIOPEN_SUGGEST_NHWC=1" * (not subject.is_nvidia)
    return f"Keep tensors in the layout of the kernels, NHWC{f' ({how})' * subject.is_torch}."


_OF_MIOPEN = "SubTensorOpWithCast"
_CAST_BY_SOLVER = (
    "MIOpen's solver works in another type and casts its result: compare solvers with MIOPEN_FIND_ENFORCE=SEARCH."
)


def _casts(subject: Subject) -> Iterator[Found]:
    ns = sum(ns for (_, role, _), ns in subject.makeup.parts.items() if role == "cast")
    if ns and subject.share(ns) >= CASTS:
        forms = subject.steady.counted.forms
        of_miopen = any(form.kind.role == "cast" and form.name.startswith(_OF_MIOPEN) for form in forms)
        yield Found(
            ns=subject.each(ns),
            share=subject.share(ns),
            count=1,
            number=f"{subject.time(ns)}, {percent(subject.share(ns))} of the kernel time.",
            advice=_CAST_BY_SOLVER if of_miopen else "Keep one type from layer to layer.",
        )


def _helpers(subject: Subject) -> Iterator[Found]:
    of_primitive: Counter[str] = Counter()
    of_role: Counter[tuple[str, str]] = Counter()
    for (primitive, role, helps), ns in subject.makeup.parts.items():
        of_primitive[primitive] += ns
        if primitive and helps and role not in _NO_HELPERS:
            of_role[primitive, role] += ns
    for (primitive, role), ns in sorted(of_role.items(), key=lambda item: (-item[1], item[0])):
        if ns >= HELPERS * of_primitive[primitive]:
            yield Found(
                ns=subject.each(ns),
                share=subject.share(ns),
                count=1,
                number=f"{role}: {subject.time(ns)}, {percent(ns / of_primitive[primitive])} of the time"
                f" of {primitive}, {percent(subject.share(ns))} of the kernel time.",
                scope=(primitive,),
                advice=_BY_ROLE.get(role, _OTHER_ROLE),
            )


_GEMM = "Use a solver other than Gemm: give more workspace, or run Find again."
_BY_ROLE = {
    "im2col": _GEMM,
    "col2im": _GEMM,
    "fill": "Do not set tensors to zero before each call, unless the solver needs it.",
    "transform": "The transforms are part of Winograd: compare with another solver (driver line).",
}
_OTHER_ROLE = "Look at the program and the layout: these kernels only prepare or finish the work of others."


def _short(subject: Subject) -> Iterator[Found]:
    (short, ns), (everything, _) = subject.makeup.short, subject.makeup.all
    enough = short >= MANY_SHORT * subject.count
    if enough and short >= SHORT_BY_COUNT * everything and subject.share(ns) >= SHORT_BY_TIME:
        limited = subject.host_bound
        why, advice = "", _launched(subject)
        severity: Severity | None = None
        if subject.alignment.profile.counters:
            return  # counters run kernels one at a time
        if limited is None:
            why, severity = " The profile does not show whether launches limit them.", "info"
        elif limited < HOST_BOUND:
            why, severity, advice = " They run back to back: launches do not limit them.", "info", _BACK_TO_BACK
        yield Found(
            ns=subject.each(ns),
            share=subject.share(ns),
            count=subject.each(short),
            number=f"{subject.each(short):,} of {count(subject.each(everything), 'kernel')}{subject.per} are shorter"
            f" than 10 us. They take {percent(subject.share(ns))} of the kernel time.{why}",
            severity=severity,
            advice=advice,
        )


_BACK_TO_BACK = "Launching less will not help. Fusion may still save memory traffic."


def _launched(subject: Subject) -> str:
    """How this program can launch fewer or longer kernels."""
    if subject.waits:
        return "Fuse operations (MIOpen's fusion plans), or use larger batches."
    fuse = "Fuse kernels" + (
        " (torch.compile)" * (not subject.is_compiled)
        if subject.is_torch
        else " (MIOpen's fusion plans)" * subject.uses_miopen
    )
    if subject.replayed > IN_GRAPHS:
        return f"{fuse}, or use larger batches: graphs launch them already."
    return f"{fuse}, capture the iteration in a graph, or use larger batches: a launch costs as much as such a kernel."


RULES = (
    Rule(
        id="naive",
        title="Naive solvers are used.",
        fires="kernels of a naive solver, by the log's solver or the kernel's name, outside searches; >= 0.5 % of T",
        formula="their time per steady iteration; share of T",
        advice="Let Find run once (MIOPEN_FIND_MODE=NORMAL, or MIOPEN_FIND_ENFORCE=SEARCH), and give it workspace."
        " Check that MIOpen's kernel database for this GPU is installed.",
        find=_naive,
    ),
    Rule(
        id="layout-transposes",
        title="Layouts are transposed around convolutions.",
        fires="kernels of role transpose are >= 10 % of the time of convolutions, and >= 0.5 % of T",
        formula="their time per steady iteration; share of T; high only from 20 % of the convolutions on",
        advice="Keep tensors in the layout of the kernels: NHWC (PyTorch: memory_format=torch.channels_last,"
        " PYTORCH_MIOPEN_SUGGEST_NHWC=1). If most tensors are NHWC already: look for a solver that needs no transpose.",
        find=_transposes,
    ),
    Rule(
        id="casts",
        title="Tensors are cast.",
        fires="kernels of role cast are >= 2 % of T",
        formula="their time per steady iteration; share of T",
        advice="Keep one type from layer to layer. If MIOpen's solver casts its result: compare solvers with"
        " MIOPEN_FIND_ENFORCE=SEARCH.",
        find=_casts,
    ),
    Rule(
        id="helpers",
        title="Auxiliary kernels take much of the time.",
        fires="kernels of one auxiliary role (im2col, fill, copy, transform, ...) are >= 10 % of their primitive's"
        " time, and >= 0.5 % of T",
        formula="their time per steady iteration; share of T",
        advice="by role. im2col and col2im: use a solver other than Gemm. fill: do not set tensors to zero before each"
        " call. transform: part of Winograd; compare with another solver. Others: look at the program and the layout.",
        find=_helpers,
    ),
    Rule(
        id="short-kernels",
        title="Many kernels are very short.",
        fires="kernels shorter than 10 us are >= 20 per iteration, >= 50 % of the kernels and >= 5 % of T. Only info if"
        " less than 15 % of the step is host-bound idle time, or if the profile does not show that. It never fires if"
        " hardware counters were collected",
        formula="their time per steady iteration; share of T",
        advice="If launches limit them: fuse kernels (MIOpen's fusion plans, torch.compile), capture the iteration in a"
        " graph unless graphs launch it already, or use larger batches.",
        find=_short,
    ),
)
