"""Turn ranges of a profile into operations: MIOpen's ranges contain the whole call as text (rocm-profiles.md 1.1,
11.3).

``s_api = miopenConvolutionForward | alpha = ... | xDesc = ... | `` is the log's entry on one line, so the decoder of
logs reads it. PyTorch's ops have a table, and their inputs are in the profile.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from functools import cache, lru_cache
from itertools import pairwise

import msgspec

from mio2trace.model.choices import Gemm
from mio2trace.model.miopen import Entry, LoggedCall, MiopenLog, OperationDirection, cut_addresses
from mio2trace.model.profile import Inputs, Profile, Range
from mio2trace.ops.aten import ROWS, Given, operations_of, placed, plain
from mio2trace.ops.command import facts_of, offered
from mio2trace.ops.families.collective import is_annotation
from mio2trace.ops.families.conv import from_tensors
from mio2trace.ops.families.gemm import GemmProblem
from mio2trace.ops.log import operations
from mio2trace.ops.operation import Operation, OperationFacts
from mio2trace.ops.problem import DATA, FORWARD, WEIGHTS, Problem
from mio2trace.ops.values import ConvDescriptor, Tensor, integers
from mio2trace.patterns import late

_API = "s_api = "
_FIELD = " | "
_NO_OP = -1


def is_library_call(made: Range) -> bool:
    """Return whether MIOpen itself pushed a range, including its internal functions."""
    return made.text.startswith(_API)


def shown_text(made: Range) -> str:
    """Return the name of a range in the trace: for a library call its function; the operation has the parameters."""
    text = made.text.strip()
    return text.removeprefix(_API).partition(_FIELD)[0].strip() if is_library_call(made) else text


def operations_of_ranges(
    profile: Profile, launching: Iterable[Iterable[int]] = (), sparse: Iterable[int] = ()
) -> tuple[tuple[Operation, ...], tuple[int, ...]]:
    """Return (operations, the place of each one's range in the profile), in order of time. Lines are 0: there is no
    log.

    A range of two operations (the gradients of data and of weights) occurs twice, one after the other. ``launching``:
    for each range that launched something, its own place and then the places of the ranges around it. ``sparse``:
    ranges that launched products of sparse matrices, whose sizes do not tell their work.
    """
    library = _of_library(profile)
    framework = _of_framework(profile, launching, sparse, {place for _, place in library})
    if not library or not framework:
        both = library or framework
    else:
        both = sorted([*library, *framework], key=lambda pair: profile.ranges[pair[1]].start_ns)
    return tuple(operation for operation, _ in both), tuple(place for _, place in both)


def _of_library(profile: Profile) -> list[tuple[Operation, int]]:
    calls = [place for place, made in enumerate(profile.ranges) if is_library_call(made)]
    calls.sort(key=lambda place: (profile.ranges[place].start_ns, -profile.ranges[place].end_ns))
    if not calls:
        return []
    made = operations(MiopenLog(source=profile.source, records=_records(profile, calls)))
    return [
        (msgspec.structs.replace(operation, line=0, end_line=0), calls[operation.line - 1]) for operation in made
    ]  # fmt: skip


def _of_framework(
    profile: Profile, launching: Iterable[Iterable[int]], sparse: Iterable[int], library: set[int]
) -> list[tuple[Operation, int]]:
    """Return all ops of XLA. Of PyTorch's ops return the innermost ones in the table of ops, and for each other launch
    the innermost op around it; none if it calls MIOpen (``library``: the places of such calls)."""
    ranges = profile.ranges
    if profile.framework.name == FRAMEWORK:
        programs = {made.text for made in ranges if made.kind == "frame"}
        named_by = {made.text.rpartition("/") for made in ranges if made.kind == "operator"}
        programs_with = Counter(name for program, _, name in named_by if program in programs)
        of_several = {name for name, count in programs_with.items() if count > 1}
        return [
            (Operation(facts=placed(_facts(made.text, made.inputs, of_several), profile.source, None)), place)
            for place, made in enumerate(ranges)
            if made.kind == "operator"
        ]
    operators = [place for place, made in enumerate(ranges) if made.kind == "operator"]
    if not operators:
        return []
    places = [*library, *(place for place in operators if ranges[place].text in ROWS)]
    places.sort(key=lambda place: (ranges[place].thread, ranges[place].start_ns, -ranges[place].end_ns))
    innermost = [
        place
        for place, following in pairwise([*places, None])
        if place is not None
        and (
            following is None
            or ranges[following].thread != ranges[place].thread
            or ranges[following].start_ns >= ranges[place].end_ns
        )
    ]
    threads = [thread.tid for thread in profile.threads]
    several = len(threads) > 1
    alike: dict[tuple[int, int], OperationFacts] = {}
    found: list[tuple[Operation, int]] = []

    def add(operation: Operation, place: int) -> None:
        thread = ranges[place].thread if several else 0
        key = id(operation.facts), thread
        facts = alike.get(key)
        if facts is None:
            facts = alike[key] = placed(operation.facts, profile.source, threads[thread] if several else None)
            kept.append(operation)  # an id is unique only while its object exists
        found.append((Operation(facts=facts), place))

    kept: list[Operation] = []
    modelled = library.copy()
    told_otherwise = library.union(sparse)
    for place in innermost:
        for operation in operations_of(ranges[place].text, ranges[place].inputs) if place not in told_otherwise else ():
            add(operation, place)
            modelled.add(place)
    others: dict[int, str] = {}
    named = cache(is_annotation)
    for around in launching:
        op, collective = _NO_OP, ""
        for place in around:
            if place in modelled:
                break
            text = ranges[place].text
            if ranges[place].kind != "operator":
                collective = collective or (text if named(text) else "")
            elif op == _NO_OP and text.strip():
                op = place
        else:
            if op != _NO_OP:
                others[op] = collective
    for place, collective in others.items():
        add(plain(ranges[place].text, ranges[place].inputs, collective), place)
    found.sort(key=lambda pair: (ranges[pair[1]].start_ns, pair[1]))
    return found


def _records(profile: Profile, calls: Sequence[int]) -> tuple[Entry, ...]:
    """Return an entry per call, as in a log of one line each; equal calls share an object, as in a log."""
    shared: dict[LoggedCall, LoggedCall] = {}
    records = []
    for line, place in enumerate(calls, 1):
        made = profile.ranges[place]
        api, *fields = made.text.removeprefix(_API).rstrip(" |").split(_FIELD)
        body = "".join(f"{field}\n" for field in fields).encode()
        template, addresses = cut_addresses(body)
        thread = profile.threads[made.thread].tid if made.thread < len(profile.threads) else made.thread
        call = LoggedCall(
            source=profile.source,
            api=api.strip().removesuffix("_impl"),
            template=template,
            thread=thread if len(profile.threads) > 1 else None,
            nested=not api.startswith("miopen") or template.startswith((b'"', b"name + ")),
        )
        records.append(Entry(line, shared.setdefault(call, call), addresses))
    return tuple(records)


# -- HLO ops of XLA as operations: convolutions and matrix products have problems, all others only names ---------------

FRAMEWORK = "XLA"
_WAYS: dict[str, OperationDirection] = {way: way for way in (FORWARD, DATA, WEIGHTS)}


def _facts(text: str, inputs: Inputs | None, of_several: Container[str]) -> OperationFacts:
    """Return the facts of an HLO op. ``of_several``: names that several programs have. XLA names the ops of each
    program anew, so these are different ops."""
    name = text.rpartition("/")[2]
    return _facts_of(text, inputs, text if name in of_several else name)


@lru_cache(maxsize=1 << 13)
def _facts_of(text: str, inputs: Inputs | None, shown: str) -> OperationFacts:
    try:
        problem = None if inputs is None else _problem(Given(inputs))
    except (ValueError, IndexError):
        problem = None
    module = text.rpartition("/")[0]
    api = text if module else f"hlo {text}"
    if problem is None:
        return OperationFacts(
            api=api, primitive=f"hlo {shown}", mode=module or None,
            command_reason="XLA compiled it, no library has it",
        )  # fmt: skip
    by = "program" if problem.dtype else None
    return facts_of(problem, offered(problem), api=api, primitive=problem.primitive, dtype_by=by)


def _problem(given: Given) -> Problem | None:
    """Return the problem; None for an op without agreed work. Raises `ValueError`, `IndexError`."""
    kind = given.text(0)
    if kind == "conv":
        x, w, y = (given.shape(place) for place in range(3))
        rank = len(x) - 2
        pads, strides, dilations = (given.numbers(place, rank) for place in (2, 3, 4))
        descriptor = ConvDescriptor(pads, strides, dilations, "convolution", output_pads=())
        tensors = (Tensor(x, ()), Tensor(w, ()), Tensor(y, ()))
        problem = from_tensors(_WAYS[given.text(1)], tensors, descriptor, integers(given.text(5))[0])
        return problem.typed(given.dtype(0))
    if kind == "gemm":
        (batch, m, k), (_, _, n) = given.shape(0), given.shape(1)
        size = Gemm(m, n, k, batch)
        lead = (batch,) if batch > 1 else ()
        product = GemmProblem(direction=None, x=(*lead, m, k), w=(*lead, k, n), y=(*lead, m, n), product=size)
        return product.typed(given.dtype(0))
    return None


# The meaning of the names of PyTorch's ranges: kinds of ops, parts of a step, modules

_PARAMETERS = {
    "conv": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution miopen_convolution",
    "norm": "batch_norm layer_norm group_norm instance_norm rms_norm native_batch_norm native_layer_norm "
    "native_group_norm miopen_batch_norm",
    "linear": "linear",
    "embedding": "embedding",
    "rnn": "lstm gru rnn_tanh rnn_relu miopen_rnn",
}
_OTHERS = {
    "attention": "scaled_dot_product_attention",
    "pool": "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
    "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d",
    **{name: f"{name} {name}_" for name in ("relu", "relu6", "leaky_relu", "elu", "gelu", "silu", "mish", "hardswish")},
    "product": "mm addmm bmm baddbmm matmul einsum _scaled_mm",
}
_ATEN = {f"aten::{name}": kind for kinds in (_PARAMETERS, _OTHERS) for kind, of in kinds.items() for name in of.split()}
_CUSTOM = {
    "norm": late(r"(?:rms|layer|group|batch|instance)_?norm", re.IGNORECASE),
    "attention": late(r"attention|fmha|mha_|flash_attn", re.IGNORECASE),
    "embedding": late(r"embedding\w{0,40}lookup|embedding_bag", re.IGNORECASE),
    "linear": late(r"(?<!fb)gemm|scaled_mm", re.IGNORECASE),  # fbgemm is a library
}
WITH_PARAMETERS = frozenset(_PARAMETERS)
NAMED = frozenset((*_PARAMETERS, *_OTHERS)) - {"product"}
"""Kinds of ops that are layers: with parameters, or mostly modules of their own."""
ANCHORS = WITH_PARAMETERS | {"attention", "product"}
VIEW = "view"
_LAUNCHES_NOTHING = (
    "empty empty_like empty_strided view permute transpose t slice select split split_with_sizes chunk expand "
    "as_strided alias detach unsqueeze squeeze lift_fresh unbind narrow resolve_conj"
)
VIEWS = frozenset(f"aten::{name}" for name in _LAUNCHES_NOTHING.split())
GRADIENT = "autograd::engine::evaluate_function: "
_IS_BACKWARD = late(r"\w+Backward\d*$")
REGIONS = ("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph")
_OPTIMIZER = "Optimizer."
OPTIMIZER_STEP = f"{_OPTIMIZER}step"
MODULE = "nn.Module: "


def kind_of(text: str) -> str:
    """Return the kind of an op by its name, else an empty text."""
    kind = _ATEN.get(text)
    if kind is not None:
        return kind
    if text.startswith("aten::") or "::" not in text or text.startswith(GRADIENT):
        return ""
    return next((kind for kind, pattern in _CUSTOM.items() if pattern.search(text) is not None), "")


def part_of_step(text: str) -> str:
    """Return whether a range is of a backward pass or an optimizer; an empty text for any other."""
    if text.startswith(_OPTIMIZER):
        return "optimizer"
    return "backward" if text.startswith(GRADIENT) or _IS_BACKWARD.match(text) is not None else ""


def is_training(ranges: Iterable[Range]) -> bool:
    """Return whether a backward pass or an optimizer is recorded."""
    return any(map(part_of_step, {made.text for made in ranges}))


def is_module(made: Range) -> bool:
    return made.kind == "frame" and made.text.startswith(MODULE)
