"""Rules on kernels: naive solvers, layouts, casts, auxiliary kernels, short kernels, kernels to fuse."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from mio2trace.align import NONE
from mio2trace.findings.rule import SEVERITIES, Found, Rule, Severity, percent, severity_of
from mio2trace.findings.subject import Subject
from mio2trace.model.tables import distinct, summed
from mio2trace.ops.naming import problem_name
from mio2trace.ops.operation import Operation
from mio2trace.outgoing import count

OF_CONVOLUTIONS, MANY_OF_CONVOLUTIONS = 0.10, 0.20
CASTS, HELPERS = 0.02, 0.10
MANY_SHORT, SHORT_BY_COUNT, SHORT_BY_TIME = 20, 0.50, 0.05
HOST_BOUND = 0.15
"""Launches limit short kernels if the GPU waits for the host in at least this part of the step."""
IN_GRAPHS = 0.5
""""Use graphs" is no advice if graphs launch at least this part of the kernel time."""
_NO_HELPERS = frozenset(("transpose", "cast", "statistics"))
"""Roles that have a rule of their own, and the kernels for means and variances, which are half of a normalisation's
work."""


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
    """Say how to avoid transposes in this run: advise NHWC only if its convolutions do not use it already."""
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
        if subject.has_counters or subject.is_capture:
            return
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
        " less than 15 % of the step is host-bound idle time, or if the profile does not show that. It never fires for"
        " captures of graphs, or if hardware counters were collected",
        formula="their time per steady iteration; share of T",
        advice="If launches limit them: fuse kernels (MIOpen's fusion plans, torch.compile), capture the iteration in a"
        " graph unless graphs launch it already, or use larger batches.",
        find=_short,
    ),
)


# -- Kernels that a program could run as fewer ones: attention in several kernels, element-wise kernels ----------------

ATTENTION = 0.3
ELEMENT_WISE = 0.5
NEAR = 8
"""The most operations between a product and the softmax (scale, mask, cast, dropout, copies)."""
_FUSED = re.compile(r"scaled_dot_product|flash_attn|mem_efficient|fmha", re.IGNORECASE | re.ASCII)
_NATIVE = "at::native::"
_OF_ELEMENTS = re.compile(
    r"elementwise_kernel|CatArrayBatchedCopy|layer_norm|LayerNorm|RowwiseMoments|GroupNorm|rms_norm"
    r"|reduce_kernel<.{0,40}ReduceOp",
    re.DOTALL,
)


def _parts(subject: Subject, softmax: int, order: Sequence[int]) -> list[int]:
    """Return the operations of an attention around a softmax: a product that writes its matrix, a product that reads
    the result, and the operations between them with the same number of elements. Empty if one of the products is
    missing.

    ``order``: indices of operations in the order of execution. ``softmax``: a place in it.
    """
    at = subject.measures.operation_at
    elements = prod(at[order[softmax]].input)
    before = [order[place] for place in range(softmax - 1, max(-1, softmax - 2 - NEAR), -1)]
    after = [*order[softmax + 1 : softmax + 2 + NEAR]]
    first = next((n for n, index in enumerate(before) if _is_product(at[index], elements, gives=True)), NONE)
    last = next((n for n, index in enumerate(after) if _is_product(at[index], elements, gives=False)), NONE)
    if NONE in (first, last):
        return []
    between = [index for index in (*before[:first], *after[:last]) if prod(at[index].input) == elements]
    return [before[first], order[softmax], *between, after[last]]


def _is_product(operation: Operation, elements: int, *, gives: bool) -> bool:
    """Return whether the operation is a batched product that writes (``gives``), or reads, a matrix of ``elements``
    elements."""
    gemm = operation.gemm
    return gemm is not None and gemm.batch > 1 and gemm.batch * gemm.m * (gemm.n if gives else gemm.k) == elements


def _attentions(subject: Subject) -> list[list[int]]:
    """The operations of each attention that runs as several kernels in steady iterations; empty if a fused one runs."""
    has_softmax = subject.is_torch and any(one.operation.primitive == "softmax" for one in subject.problems)
    if not has_softmax or any(map(_FUSED.search, subject.texts)):
        return []
    at = subject.measures.operation_at
    found = []
    for order in subject.stretches:
        for place, index in enumerate(order):
            if at[index].primitive == "softmax" and at[index].input:
                parts = _parts(subject, place, order)
                if parts:
                    found.append(parts)
    return found


def _attention(subject: Subject) -> Iterator[Found]:
    attentions = _attentions(subject)
    timed = subject.measures.operations.timed_ns
    ns = sum(timed[index] for index in {index for parts in attentions for index in parts})
    if not ns or subject.share(ns) < ATTENTION:
        return
    softmaxes = Counter[str]()
    for parts in attentions:
        softmaxes[problem_name(subject.measures.operation_at[parts[1]])] += sum(timed[index] for index in parts)
    names = [name for name, _ in softmaxes.most_common()]
    yield Found(
        ns=subject.each(ns),
        share=subject.share(ns),
        count=subject.each(len(attentions)),
        number=f"{subject.time(ns)}, {percent(subject.share(ns))} of the kernel time, in"
        f" {count(subject.each(len(attentions)), 'group')} of product, softmax and product; most with {names[0]}.",
        names=(names[0],),
        scope=tuple(names),
    )


def _is_of_elements(name: str) -> bool:
    """Return whether torch.compile would fuse this PyTorch kernel with others."""
    return _NATIVE in name and _OF_ELEMENTS.search(name) is not None


def _element_wise(subject: Subject) -> Iterator[Found]:
    limited = subject.host_bound
    if not subject.is_torch or limited is None or limited >= HOST_BOUND or subject.is_compiled:
        return
    of_steady = subject.steady.counted
    of_elements = {number for number, form in enumerate(of_steady.forms) if _is_of_elements(form.name)}
    attention = {index for parts in _attentions(subject) for index in parts}
    operation_of = np.asarray(subject.alignment.links.operation_of)[of_steady.kernels]
    chosen = np.isin(of_steady.form_of, [*of_elements]) & ~np.isin(operation_of, [*attention])
    first, form_of = distinct(of_steady.form_of[chosen])
    times: Counter[str] = Counter()
    sums = summed(form_of, of_steady.ns[chosen], len(first)).tolist()
    for number, ns in zip(of_steady.form_of[chosen][first].tolist(), sums, strict=True):
        times[of_steady.forms[number].name] += ns
    kernels = int(chosen.sum())
    ns = times.total()
    if subject.share(ns) > ELEMENT_WISE:
        yield Found(
            ns=subject.each(ns),
            share=subject.share(ns),
            count=subject.each(kernels),
            number=f"{count(subject.each(kernels), 'kernel')}{subject.per} that add, scale, copy, join or normalise"
            f" take {percent(subject.share(ns))} of the kernel time ({subject.time(ns)}).",
            scope=tuple(name for name, _ in times.most_common()),
        )


FUSION = (
    Rule(
        id="unfused-attention",
        title="Attention runs as several kernels.",
        fires="PyTorch runs softmaxes between two batched products of matching sizes, and no fused attention"
        " (scaled_dot_product_attention, FlashAttention). The softmaxes, the products and the operations between them"
        " are >= 30 % of T",
        formula="their time per steady iteration; share of T",
        advice='Call torch.nn.functional.scaled_dot_product_attention (transformers: attn_implementation="sdpa"). It'
        " runs attention as one kernel, which never writes the large matrix.",
        find=_attention,
    ),
    Rule(
        id="element-wise",
        title="Element-wise kernels take most of the time.",
        fires="PyTorch's element-wise, copy, concatenate, reduce and normalise kernels are > 50 % of T, and less than"
        " 15 % of the step is host-bound idle time. Kernels of `unfused-attention` are not counted. It never fires if"
        " torch.compile compiled a part of the program",
        formula="their time per steady iteration; share of T",
        advice="Fuse them: torch.compile(model) makes fewer kernels of them, which read and write memory less often.",
        find=_element_wise,
    ),
)
