"""Rules on kernels that a program could run as fewer ones: attention in several kernels, element-wise kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from mio2trace.align import NONE
from mio2trace.findings.rule import Found, Rule, count, percent
from mio2trace.findings.subject import Subject
from mio2trace.ops.naming import problem_name
from mio2trace.ops.operation import Operation

ATTENTION = 0.3
ELEMENT_WISE = 0.5
HOST_BOUND = 0.15
"""Part of the step in which the GPU waits for the host, from which on launches are the limit and not the kernels."""
NEAR = 8
"""Operations between a product and the softmax (scale, mask, cast, dropout, copies), at most."""
_FUSED = re.compile(r"scaled_dot_product|flash_attn|mem_efficient|fmha", re.IGNORECASE | re.ASCII)
_NATIVE = "at::native::"
_OF_ELEMENTS = re.compile(
    r"elementwise_kernel|CatArrayBatchedCopy|layer_norm|LayerNorm|RowwiseMoments|GroupNorm|rms_norm"
    r"|reduce_kernel<.{0,40}ReduceOp",
    re.DOTALL,
)


def _parts(subject: Subject, softmax: int, order: Sequence[int]) -> list[int]:
    """Return the operations of an attention around a softmax: a product that gives its matrix, one that reads the
    result, and what has as many elements between them. Empty if one of the products is not there.

    ``order``: indices of operations as they ran; ``softmax``: a place in it.
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
    """Return whether a batched product gives, or reads, a matrix of so many elements."""
    gemm = operation.gemm
    return gemm is not None and gemm.batch > 1 and gemm.batch * gemm.m * (gemm.n if gives else gemm.k) == elements


def _attentions(subject: Subject) -> list[list[int]]:
    """The operations of each attention that runs as several kernels in steady iterations; empty if a fused one runs."""
    has_softmax = subject.is_torch and any(one.operation.primitive == "softmax" for one in subject.problems)
    if not has_softmax or any(map(_FUSED.search, subject.texts)):
        return []
    at, operation_of = subject.measures.operation_at, subject.alignment.links.operation_of
    found = []
    for stretch in subject.stretches:
        order = [index for index in dict.fromkeys(map(operation_of.__getitem__, stretch)) if index != NONE]
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
    """Return whether it is a kernel of PyTorch that torch.compile joins with others."""
    return _NATIVE in name and _OF_ELEMENTS.search(name) is not None


def _element_wise(subject: Subject) -> Iterator[Found]:
    limited = subject.host_bound
    if not subject.is_torch or limited is None or limited >= HOST_BOUND or subject.is_compiled:
        return
    of_steady = subject.steady.counted
    of_elements = {number for number, form in enumerate(of_steady.forms) if _is_of_elements(form.name)}
    attention = {index for parts in _attentions(subject) for index in parts}
    operation_of = subject.alignment.links.operation_of
    times: Counter[str] = Counter()
    kernels = 0
    for position, ns, number in zip(of_steady.kernels, of_steady.ns, of_steady.form_of, strict=True):
        if number in of_elements and operation_of[position] not in attention:
            times[of_steady.forms[number].name] += ns
            kernels += 1
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


RULES = (
    Rule(
        id="unfused-attention",
        title="Attention runs as several kernels.",
        fires="PyTorch runs softmaxes between two batched products of matching sizes, these and what is between them"
        " are >= 30 % of T, and no fused attention runs (scaled_dot_product_attention, FlashAttention)",
        formula="their time per steady iteration; share of T",
        advice='Call torch.nn.functional.scaled_dot_product_attention (transformers: attn_implementation="sdpa"). It'
        " runs attention as one kernel, which never writes the large matrix.",
        find=_attention,
    ),
    Rule(
        id="element-wise",
        title="Element-wise kernels take most of the time.",
        fires="PyTorch's kernels that are element-wise, copy, concatenate, reduce or normalise (without those of"
        " `unfused-attention`) are > 50 % of T, less than 15 % of the step is host-bound idle time, and nothing in the"
        " profile was compiled by torch.compile",
        formula="their time per steady iteration; share of T",
        advice="Fuse them: torch.compile(model) makes fewer kernels of them, which read and write memory less often.",
        find=_element_wise,
    ),
)
