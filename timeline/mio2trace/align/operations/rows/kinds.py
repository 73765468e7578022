"""The kernels of one queue: kinds, buffers, relations between neighbours, and what build options state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from mio2trace.align.operations.rates import NATS_MISSTATED, NATS_NEVER
from mio2trace.align.operations.rows.calls import SEVERAL, alone
from mio2trace.kernels import KernelFact
from mio2trace.kernels.facts import number
from mio2trace.kernels.names import FBW, FW, KernelName, W, cut_at, cut_name, in_full, kernel_name, stem
from mio2trace.model.gemm import Gemm
from mio2trace.model.miopen import OperationDirection
from mio2trace.model.profile import Activity, Profile, Size3
from mio2trace.ops.operation import Operation
from mio2trace.patterns import late

PRE = frozenset(("im2col", "subsample", "fill", "scale", "prepare", "copy", "reshape"))
"""Helpers before the kernel that does the work."""
POST = frozenset(("col2im", "reduce", "upsample"))
FIRST_ADDRESS = 1 << 16
"""Smaller arguments of 8 bytes are sizes."""

_HELPS_NEXT = frozenset(("im2col", "subsample", "prepare", "transform"))
_NO_HELP = frozenset(("", "main", "bias"))
_WRITES = frozenset(("main", "scale"))
_READS = frozenset(("im2col", "subsample", "transpose"))
_WHOLE_CALLS = late(r"SubTensorOp|CopyTensor")
"""Helpers that only calls for one tensor launch."""
_WRITES_LAST = late(r"miog_|MIOpenC(?:onv|DFGen|v)|MLOpenCv|Im\d?2|Im2d2Col|Col2Im|transpose_|SubSample")
"""Convolution kernels that write their last buffer (the OpenCL sources of MIOpen 1.0 to 2.9)."""
_GEMMS = frozenset(("miog_betac_alphaab", "miog_alphaab", "miog_betac"))
"""MIOpenGEMM's kernels: each buffer is followed by its offset in elements; beta is argument 7 of the first."""
_LOST = "..."
_SCALED: tuple[OperationDirection, ...] = ("forward", "backward-data")
"""Only the gradient of the weights adds to its result; a scaled result is another direction's."""
_NAMED_FILTER = late(r"(?:[Cc]onv|CvD|CvFwd|CvBwd)(\d{1,2})x(\d{1,2})(?!\d)")
_ZERO, _ONE = "00000000", "0000803f"


class KernelKind(msgspec.Struct, frozen=True, gc=False):
    """What activities of equal name, size, program, GEMM and integer arguments share.

    ``directions``: those that name, options or beta allow, empty for any. ``offsets``: begins of a GEMM in its buffers,
    in elements, if known. ``filters``, ``channels`` (output, input): as name or options state. ``is_unknown``: the name
    is unknown, ``name`` comes from options."""

    name: KernelName | None
    library: bool
    gemm: Gemm | None
    launch: tuple[str, Size3 | None]
    workgroup: Size3 | None
    numbers: frozenset[int]
    directions: tuple[OperationDirection, ...]
    filters: tuple[int, ...]
    channels: tuple[int, ...]
    role: str
    offsets: tuple[int, ...] | None
    is_unknown: bool

    @property
    def is_strange(self) -> bool:
        """Whether nothing shows that it is the library's."""
        return self.name is None and not self.library

    @property
    def is_gemm(self) -> bool:
        """Whether the name is a GEMM's."""
        return self.name is not None and self.name.algorithm == "Gemm" and self.role == "main"


class Kernels:
    """The kernels of one queue in order: kinds, buffers, relations to the kernel before.

    ``named``: buffers that an operation names. ``helped[i]``: 2 if kernel i reads what the one before made for it, 1 if
    probably. ``apart[i]``: both have buffers, but no common one. ``again[i]``: equal to one of the two before.
    ``parted[i]``: the thread moved host data in between. ``in_row[i]``: continues a row of GEMMs. ``after_helper[i]``:
    follows a helper of what comes next. ``gemm_before[i]``, ``main_before[i]``: kind of the last GEMM, of the
    last main kernel, or -1. ``written``, ``read``: buffer
    of the kernel, of a helper, or 0. ``cut``: length at which a tool cut ``names``, or 0. ``is_blurred``: cut names do
    not distinguish GEMM and scaling."""

    def __init__(
        self,
        profile: Profile,
        positions: Sequence[int],
        facts: Mapping[int, KernelFact],
        every: Collection[int],
        workspaces: frozenset[int],
    ) -> None:
        self._programs = profile.opencl.programs
        self._stated: dict[str, Stated] = {}
        self._number_of: dict[object, int] = {}
        self.kinds: list[KernelKind] = []
        self.is_blurred = False
        self.names = frozenset([profile.activities[position].name for position in positions])
        self.cut = cut_at(self.names)
        self.parted = _parted(profile, positions)
        self.helped = bytearray()
        self.apart = bytearray()
        signs: list[_Sign] = []
        known: dict[object, _Sign] = {}
        ties: dict[tuple[int, int], tuple[int, int]] = {}
        before, is_new = _NO_SIGN, True
        for position in positions:
            activity, fact = profile.activities[position], facts.get(position)
            # A name that is in no table may be any, that of what scales as well.
            scaled = None if before.kind >= 0 and self.kinds[before.kind].is_unknown else before.name == "miog_betac"
            key = (
                activity.name, activity.grid, activity.workgroup, id(activity.opencl),
                0 if fact is None else id(fact.gemm), scaled,
            )  # fmt: skip
            was_new, is_new = is_new, key not in known
            if is_new:
                kind = self._kind_of(activity, fact, scaled=scaled)
                known[key] = _sign(len(known), activity, kind, self.kinds[kind], every)
            sign = known[key]
            pair = before.number, sign.number
            tie = None if was_new or is_new else ties.get(pair)
            if tie is None:
                tie = _tie(before, sign, workspaces)
                if not (was_new or is_new):
                    ties[pair] = tie
            signs.append(sign)
            self.helped.append(tie[0])
            self.apart.append(tie[1])
            before = sign
        self.of = of = [sign.kind for sign in signs]
        self.named = [sign.named for sign in signs]
        self.written = [sign.written for sign in signs]
        self.read = [sign.read for sign in signs]
        before_both = zip(of, [-1, *of], [-1, -1, *of], strict=False)
        self.again = bytearray([one in (first, second) for one, first, second in before_both])
        library = [kind.library for kind in self.kinds]
        gemms = [kind.is_gemm for kind in self.kinds]
        rows = [kind.library and (kind.is_gemm or kind.role == "scale") for kind in self.kinds]
        helps = [kind.role in PRE and not _WHOLE_CALLS.match(kind.launch[0]) for kind in self.kinds]
        self.in_row = bytearray([again and rows[number] for again, number in zip(self.again, of, strict=True)])
        helping = zip([*of[:1], *of], of, strict=False)
        self.after_helper = bytearray([library[number] and helps[before] for before, number in helping])
        self.gemm_before = [*accumulate(of, lambda last, number: number if gemms[number] else last, initial=-1)]
        mains = [kind.role == "main" for kind in self.kinds]
        self.main_before = [*accumulate(of, lambda last, number: number if mains[number] else last, initial=-1)]

    def __len__(self) -> int:
        return len(self.of)

    def kind(self, at: int) -> KernelKind:
        return self.kinds[self.of[at]]

    def _kind_of(self, activity: Activity, fact: KernelFact | None, *, scaled: bool | None) -> int:
        launched, name = self._name_of(activity.name)
        is_unknown, stated = name is None, self._stated_by_options(activity)
        name = name or stated.meaning
        arguments = activity.opencl.arguments
        is_gemm = name is not None and name.algorithm == "Gemm" and name.role in ("main", "scale")
        own: tuple[object, ...] = ()
        if is_gemm:
            own = (*arguments[1:6:2], *arguments[7:8], scaled) if launched in _GEMMS else ()
        elif name is not None:
            own = _integers(arguments)
        key = (
            activity.name, activity.grid, activity.workgroup, activity.opencl.program,
            id(fact.gemm) if fact is not None and fact.gemm is not None else 0, own,
        )  # fmt: skip
        known = self._number_of.get(key)
        if known is not None:
            return known
        numbers = frozenset[int]()
        if name is not None and not is_gemm:
            numbers = stated.numbers.union(_integers(arguments))
        directions = directions_of(name, stated)
        if is_gemm and name is not None and name.role == "scale":
            directions = _SCALED
        offsets = None
        if is_gemm and launched in _GEMMS and len(arguments) > 2 and len(arguments[1]) == 8:
            values = [number(one) for one in arguments[1:6:2]]
            offsets = tuple(value for value in values if value)
            directions = _directions_by_beta(launched, arguments, scaled=scaled)
        self.kinds.append(
            KernelKind(
                name=name,
                library=stated.library or name is not None,
                gemm=fact.gemm if fact is not None else None,
                launch=(launched, activity.grid),
                workgroup=activity.workgroup,
                numbers=numbers,
                directions=directions,
                filters=_filters(launched) or stated.filters,
                channels=stated.channels,
                role=name.role if name is not None else "",
                offsets=offsets,
                is_unknown=is_unknown,
            )
        )
        self._number_of[key] = len(self.kinds) - 1
        return len(self.kinds) - 1

    def _name_of(self, name: str) -> tuple[str, KernelName | None]:
        """Return the kernel's name, completed if it was cut, and its meaning."""
        if len(name) == self.cut:
            whole = in_full(name, _GEMMS)
            self.is_blurred |= whole is None
            return whole or name + _LOST, cut_name(name)
        name = stem(name)
        meaning = kernel_name(name)
        return name, meaning if meaning is not None and meaning.miopen else None

    def _stated_by_options(self, activity: Activity) -> Stated:
        options = self._programs[activity.opencl.program].options if activity.opencl.program is not None else ""
        stated = self._stated.get(options)
        if stated is None:
            stated = self._stated[options] = read_options(options)
        return stated


def _parted(profile: Profile, positions: Sequence[int]) -> bytearray:
    """Return whether the kernel's thread moved data between host and device since the one before."""
    activities = profile.activities
    parted = bytearray(len(positions))
    for place, (before, after) in enumerate(pairwise(positions), 1):
        if after - before > 1:
            thread = activities[after].thread
            between = (activities[position] for position in range(before + 1, after))
            parted[place] = any("host" in one.route and one.thread == thread for one in between)
    return parted


def buffers_among(arguments: Sequence[str]) -> tuple[int, ...]:
    """Return arguments of 8 bytes that may be handles, as little-endian numbers (dvdt-ck.md 1.3)."""
    return tuple(
        [
            value
            for argument in arguments
            if len(argument) == 16 and (value := number(argument)) is not None and value >= FIRST_ADDRESS
        ]
    )


def _filters(name: str) -> tuple[int, ...]:
    """Return the filter's size in a name: ``MIOpenConv1x1``, ``MIOpenCvFwd11x11``."""
    match = _NAMED_FILTER.search(name)
    return (int(match[1]), int(match[2])) if match else ()


def _integers(arguments: Sequence[str]) -> tuple[int, ...]:
    """Return arguments of 4 bytes as integers; floats are too large and left out."""
    return tuple(
        [
            value
            for argument in arguments
            if len(argument) == 8 and (value := number(argument)) is not None and 3 < value < 1 << 24
        ]
    )


def _directions_by_beta(name: str, arguments: Sequence[str], *, scaled: bool | None) -> tuple[OperationDirection, ...]:
    """Beta is 1 if a convolution's GEMM adds to its result, else 0. ``scaled``: a kernel before scaled the result."""
    if name == "miog_betac_alphaab":
        beta = arguments[7] if len(arguments) > 7 else ""
    elif name == "miog_betac":
        beta = _ZERO
    else:
        beta = "" if scaled is None else _ZERO if scaled else _ONE
    return {_ZERO: _SCALED, _ONE: ("backward-weights",)}.get(beta, ())


class _Sign(msgspec.Struct, frozen=True, gc=False):
    number: int
    name: str
    kind: int
    role: str
    convolves: bool
    buffers: tuple[int, ...]
    named: frozenset[int]
    written: int
    read: int


_NO_SIGN = _Sign(-1, "", -1, "", False, (), frozenset(), 0, 0)


def _sign(number: int, activity: Activity, kind_number: int, kind: KernelKind, every: Collection[int]) -> _Sign:
    buffers = buffers_among(activity.opencl.arguments)
    return _Sign(
        number=number,
        name=kind.launch[0],
        kind=kind_number,
        role=kind.role,
        convolves=kind.name is not None and (not kind.name.primitives or "conv" in kind.name.primitives),
        buffers=buffers,
        named=frozenset([one for one in buffers if one in every]),
        written=buffers[-1] if buffers and _WRITES_LAST.match(kind.launch[0]) else 0,
        read=buffers[0] if buffers and kind.role in _READS else 0,
    )


def _tie(before: _Sign, sign: _Sign, workspaces: frozenset[int]) -> tuple[int, int]:
    first, second = before.buffers, sign.buffers
    if not first or not second:
        return 0, 0
    both = sign.convolves and before.convolves
    helped = _helped(first, before.role, second, sign.role, workspaces, both=both)
    differ = len(first) > 1 < len(second) and set(first).isdisjoint(second)
    if both and {sign.role, before.role} <= _WRITES and sign.written and before.written:
        # All that one search or call computes goes into one tensor.
        helped, differ = int(sign.written == before.written), sign.written != before.written
        if first == second and sign.kind == before.kind:
            helped = 0  # the same again: as well another call for the same
    if not sign.convolves or helped or before.role == "fill":
        return helped, 0
    return helped, 2 if differ else 1


def _helped(
    first: Sequence[int], role: str, second: Sequence[int], second_role: str, workspaces: frozenset[int], *, both: bool
) -> int:
    """Return 2 if a kernel surely reads what the one before made for it, 1 if probably.

    Who reads a workspace continues the same convolution."""
    if first[-1] not in second or (role in _NO_HELP and second_role in _NO_HELP):
        return 0
    if role in _HELPS_NEXT or (role in _NO_HELP and second_role in POST) or first[-1] in workspaces:
        return 2
    return 1 if both and (role not in _NO_HELP or second_role not in PRE) else 0


def second_nats(kind: KernelKind, operation: Operation) -> float:
    """Return the cost of a further main kernel in an execution (miopen-log.md 11.3)."""
    name = kind.name
    if operation.phase == "find" or operation.primitive in SEVERAL or operation.launches:
        return 0.0
    if name is None or not name.role:
        # It may be a helper that no table has, or that is cut off. Convolutions have them, and batch normalisation
        # takes several kernels.
        return 0.0 if operation.primitive in ("conv", "bnorm") else NATS_MISSTATED
    return NATS_NEVER if _is_single(name, kind.offsets, operation) else 0.0


def _is_single(name: KernelName, offsets: tuple[int, ...] | None, operation: Operation) -> bool:
    if name.algorithm is None:
        return alone(name)
    if name.algorithm == "Gemm":
        # The first image of another convolution, or of another way to compute it.
        return operation.primitive == "conv" and offsets == ()
    return name.algorithm in ("Direct", "Winograd", "Naive")


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
"""Macros of MIOpen's programs and the meaning of their kernels; the first match counts. 0 of 1930 kernels with truth
are of another primitive."""


class Stated(NamedTuple):
    """What build options state: numbers, direction, filter, channels, whether MIOpen's; the meaning of any kernel."""

    numbers: frozenset[int]
    forward: bool | None
    filters: tuple[int, ...]
    channels: tuple[int, ...]
    library: bool
    meaning: KernelName | None


def read_options(options: str) -> Stated:
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
    """Return the directions that name and options allow."""
    directions = () if name is None else name.directions
    if stated.forward is None or len(directions) == 1 or name is None:
        return directions
    return tuple(one for one in directions or FBW if (one == "forward") == stated.forward) or directions
