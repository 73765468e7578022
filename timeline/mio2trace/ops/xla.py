"""HLO ops of XLA to operations: convolutions and matrix products have their problem, all others their name.

A range of kind ``operator`` has the text ``module/op``. Its inputs say what the program's instruction states, in our
order: for a convolution x, w, y with direction, pads, strides, dilations and groups, for a product both matrices.
"""

from __future__ import annotations

from functools import lru_cache

from mio2trace.model.gemm import Gemm
from mio2trace.model.miopen import OperationDirection
from mio2trace.model.profile import Inputs
from mio2trace.ops.aten import Given
from mio2trace.ops.driver_options import driver_line
from mio2trace.ops.families.conv import from_tensors
from mio2trace.ops.families.gemm import GemmProblem
from mio2trace.ops.family import DATA, FORWARD, WEIGHTS
from mio2trace.ops.operation import Operation, OperationFacts
from mio2trace.ops.problem import CommandError, Problem, cost
from mio2trace.ops.values import ConvDescriptor, Tensor, integers

FRAMEWORK = "XLA"
_WAYS: dict[str, OperationDirection] = {way: way for way in (FORWARD, DATA, WEIGHTS)}


@lru_cache(maxsize=1 << 13)
def operation_of(text: str, inputs: Inputs | None) -> Operation:
    """The operation of a range."""
    try:
        problem = None if inputs is None else _problem(Given(inputs))
    except (ValueError, IndexError):
        problem = None
    module, _, name = text.rpartition("/")
    api = text if module else f"hlo {text}"
    if problem is None:
        facts = OperationFacts(
            source=0,
            api=api,
            primitive=f"hlo {name}",
            mode=module or None,
            command_reason="XLA compiled it, no library has it",
        )
        return Operation(index=0, line=0, end_line=0, facts=facts)
    try:
        command, reason = driver_line(problem), ""
    except CommandError as error:
        command, reason = None, str(error)
    geometry, of_sizes = problem.geometry, cost(problem)
    doubt = problem.check()
    facts = OperationFacts(
        source=0, api=api, primitive=problem.primitive, direction=problem.direction, input=problem.input,
        weights=problem.weights, output=problem.output, pad=geometry.pad, stride=geometry.stride,
        dilation=geometry.dilation, groups=geometry.groups, mode=problem.variant, layout=problem.memory_layout,
        dtype=problem.dtype, dtype_by="program" if problem.dtype else None, gemm=of_sizes.gemm, flop=of_sizes.flop,
        bytes_min=of_sizes.bytes_min, command=command, command_reason=reason, doubts=(doubt,) if doubt else (),
        problem=problem,
    )  # fmt: skip
    return Operation(index=0, line=0, end_line=0, facts=facts)


def _problem(given: Given) -> Problem | None:
    """None of what has no agreed work. Raises `ValueError`, `IndexError`."""
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
