"""What an API entry states by itself: problem, algorithm, workspace, solution, which of its addresses are buffers."""

from __future__ import annotations

from functools import lru_cache
from itertools import compress

import msgspec

from mio2trace.model.miopen import LoggedCall, parse_params
from mio2trace.ops import values
from mio2trace.ops.operation import Parameters
from mio2trace.ops.problem import Problem
from mio2trace.ops.table import OPS

_TYPED = ("xDesc", "dxDesc", "inputDesc", "aDesc", "yDesc", "dyDesc", "paramDesc", "probsDesc")
_SIZES = ("workSpaceSize", "workspaceSizeInBytes", "workspaceSize")
_NO_BUFFERS = frozenset(
    ("handle", "args", "problem", "solution", "options", "solutions", "noise_shape", "perfResults", "returnedAlgoCount")
)

_NULLS = frozenset(("nullptr", "NULL", "(nil)", "0"))


class Stated(msgspec.Struct, frozen=True):
    """What an entry states apart from the buffers' addresses. ``tensor`` is the one whose type counts.

    ``parameters`` tells the device's buffers among the addresses cut out of the entry: all but handles, descriptors and
    the host's alpha and beta.
    """

    problem: Problem | None
    tensor: values.Tensor | None
    algorithm: int | None
    workspace: int | None
    solution: int | None
    parameters: Parameters


def stated(call: LoggedCall) -> Stated:
    """What entries of one call state; entries that differ in their buffers only share one problem object."""
    return _stated(call.api, call.template)


@lru_cache(maxsize=1 << 14)
def _stated(api: str, template: bytes) -> Stated:
    body = template.replace(b"0x\0", b"0x1").replace(b"\0", b"0x1")
    pairs = parse_params(body)
    params = dict(pairs)
    op = OPS.get(api)
    # the parameters that hold an address, in order: the addresses cut out come in the same
    names = [name for name, value in pairs if value == "0x1" or value.startswith("stream: 0x1, device_id")]
    picked = tuple(_is_buffer(name) for name in names)
    return Stated(
        op.read(params, op) if op is not None else None,
        next((tensor for tensor in (values.tensor(params.get(name, "")) for name in _TYPED) if tensor), None),
        values.number(params.get("algo")),
        values.number(next((params[name] for name in _SIZES if name in params), None)),
        values.number(params.get("solution_id")),
        Parameters(
            tuple(compress(names, picked)),
            picked,
            frozenset(name for name, value in pairs if value in _NULLS and _is_buffer(name)),
        ),
    )


def _is_buffer(name: str) -> bool:
    return not (name.endswith(("Desc", "Op")) or name.startswith(("alpha", "beta")) or name in _NO_BUFFERS)
