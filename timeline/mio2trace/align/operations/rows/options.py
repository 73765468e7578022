"""What the options say that a kernel's program was built with: sizes, direction, and of what library call it is."""

from __future__ import annotations

from typing import NamedTuple

from mio2trace.kernels.names import FBW, FW, KernelName, W
from mio2trace.model.miopen import OperationDirection
from mio2trace.patterns import late

_MACRO = late(r"-D\s*(\w+)=(\d{1,9})\b")
_LIBRARY = late(r"(?:\b|-D\s*)(?:MLO|MIOPEN|MIO)_")
_CHANNELS = ("MLO_N_OUTPUTS", "MLO_N_INPUTS")
_FILTER = ("MLO_FILTER_SIZE1", "MLO_FILTER_SIZE0")
_TENSOR = ("optensor", "bias", "settensor", "scaletensor", "transformtensor")
_PROGRAMS = tuple(
    (
        late(pattern),
        KernelName(role=role, miopen=True, primitives=primitives, directions=directions, algorithm=algorithm),
    )
    for pattern, primitives, directions, algorithm, role in (
        (r"-D\s*MLO_POOL", ("pool",), (), "", ""),
        (r"-D\s*MIO_BN_", ("bnorm", "fusion"), (), "", ""),
        (r"-D\s*MLO_LRN_", ("lrn",), (), "", ""),
        (r"-D\s*MLO_CONVBWDB_", ("bias",), (W,), "", ""),
        (r"-D\s*(?:MIOPEN|MLO)_NRN_", ("activ", "fusion"), (), "", ""),
        (r"-D\s*NUM_IM_BLKS\b", ("conv",), FW, "Gemm", "im2col"),
        (r"-D\s*IS_2D_WG\b", ("conv",), FBW, "Gemm", "transpose"),
        (r"-D\s*MLO_(?:FILTER|FLTR)_", ("conv", "fusion"), (), "", ""),
        (r"-D\s*U_BATCH_SIZE\b", ("softmax",), (), "", ""),
        (r"-D\s*MIOPEN_TENSOR_OP\b", _TENSOR, (), "", ""),
        (r"-D\s*(?:SUBTENSOR_OP_|MIOPEN_ALPHA_TYPE)", (), (), None, "helper"),
    )
)
"""Macros of MIOpen's programs, and what their kernels compute; the first that is there tells. In runs with truth each
stands on kernels of these primitives alone (0 of 1930 otherwise)."""


class Stated(NamedTuple):
    """Numbers, direction, the filter's size, channels, whether they are MIOpen's; what any of its kernels is for."""

    numbers: frozenset[int]
    forward: bool | None
    filters: tuple[int, ...]
    channels: tuple[int, ...]
    library: bool
    meaning: KernelName | None


def read_options(options: str) -> Stated:
    """``options`` as they were given to the compiler."""
    macros = {name: int(value) for name, value in _MACRO.findall(options)}
    forward = macros.get("MLO_DIR_FORWARD")
    filters = tuple(macros[name] for name in _FILTER if name in macros)
    channels = tuple(macros[name] for name in _CHANNELS if name in macros)
    return Stated(
        numbers=frozenset(macros.values()),
        forward=None if forward is None else forward != 0,
        filters=filters if len(filters) == 2 else (),
        channels=channels if len(channels) == 2 else (),
        library=_LIBRARY.search(options) is not None,
        meaning=next((meaning for form, meaning in _PROGRAMS if form.search(options)), None),
    )


def directions_of(name: KernelName | None, stated: Stated) -> tuple[OperationDirection, ...]:
    """Those that a kernel's name and its program's options leave."""
    directions = () if name is None else name.directions
    if stated.forward is None or len(directions) == 1 or name is None:
        return directions
    return tuple(one for one in directions or FBW if (one == "forward") == stated.forward) or directions
