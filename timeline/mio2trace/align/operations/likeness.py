"""How well a kernel fits an operation: buffers, launch lines, names, sizes (alignment.md; miopen-log.md 10, 11).

Every kind of evidence gives points; only their sum over a whole path decides (`paths`). The points are set so that
one kernel which carries an operation's buffers outweighs any name, and a name outweighs the order alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from mio2trace.align.operations.sizes import is_part, may_be_part, stated_sizes
from mio2trace.evidence import BUFFERS, LAUNCH_LINE, NAME_AND_SIZES
from mio2trace.kernels import KernelFact
from mio2trace.kernels.facts import number
from mio2trace.kernels.names import KernelName, kernel_name
from mio2trace.model.gemm import Gemm
from mio2trace.model.profile import Activity, Profile, Size3
from mio2trace.ops.operation import Operation
from mio2trace.ops.values import pointer

# Points. A path gains them for each kernel that it puts into an operation, or outside of any (`gap`).
# What each decides: docs/alignment.md, printed by benchmarks/weights.py.
ALL_BUFFERS, SOME_BUFFERS, EACH_BUFFER, OTHER_BUFFERS = 6.0, 4.0, 1.0, -6.0
FOREIGN_BUFFER, FOREIGN_IN_DOUBT = -30.0, -2.5
"""A buffer that the log names elsewhere but not here; the same where the profile tells no creation of buffers, so that
its address may have been given to another one."""
AGAINST_FLOW = -60.0
"""A kernel that writes what the operation reads, or prepares what it writes."""
RIGHT_NAME, ANY_DIRECTION, ANY_PRIMITIVE = 3.0, 1.5, 1.0
UNKNOWN_NAME, WRONG_NAME = -1.0, -25.0
"""A kernel built like the library's but of a new name; another primitive's or direction's kernel, or none of the
library's: never in the operation."""
RIGHT_GEMM, WRONG_GEMM = 2.5, -6.0
RIGHT_ALGORITHM, WRONG_ALGORITHM = 0.5, -8.0
LAUNCHED, NOT_LAUNCHED = 6.0, -3.0
LIBRARY_GAP, UNLOGGED_GAP, FOREIGN_GAP = -2.0, 0.0, 1.0
"""Outside of any operation: a kernel of the library, one where not all calls are logged, a kernel of the program."""
HELPED, LIKELY_HELPED, SAME_BUFFERS, SHARED_BUFFERS, APART = 25.0, 7.0, 6.0, 1.0, -4.0
"""Two kernels in a row that a path leaves together: one reads what the other wrote for it, they write the same buffer
from the same buffers, they share two; or they are of one convolution and share none."""

PRE = frozenset(("im2col", "subsample", "fill", "scale", "prepare"))
"""Helpers that come before the kernel which does the work."""
POST = frozenset(("col2im", "reduce", "upsample"))
"""Helpers that come after it."""

_TENSOR = frozenset(("settensor", "scaletensor", "transformtensor", "optensor", "bias"))
_ONE_HELPER = frozenset(("settensor", "scaletensor", "transformtensor"))
"""What they launch is a helper of the others."""
_USES: Mapping[str, frozenset[str]] = {
    "rnn": frozenset(("optensor", "activ", "gemm", "dropout", "softmax")) | _TENSOR,
    "mha": frozenset(("gemm", "softmax", "dropout", "reduce")) | _TENSOR,
    "fusion": frozenset(("conv", "bnorm", "activ", "bias")),
    "find2": frozenset(("conv", "bnorm", "activ", "mha", "softmax", "fusion")),
    "settensor": _TENSOR, "scaletensor": _TENSOR, "transformtensor": _TENSOR,
    "optensor": frozenset(("bias",)),
    "bias": frozenset(("optensor",)),
    "sum": frozenset(("reduce",)),
}  # fmt: skip
"""Primitives whose kernels another one launches, too."""
_MACRO = re.compile(r"-D\s*(\w+)=(\d{1,9})\b")
_LIBRARY = re.compile(r"\b(?:MLO|MIOPEN|MIO)_")


_HELPS_NEXT = frozenset(("im2col", "subsample", "prepare", "transform"))
_NO_HELP = frozenset(("", "main", "bias"))
_WRITES_LAST = re.compile(r"miog_|MIOpenC(?:onv|DFGen|v)|MLOpenCv|Im\d?2|Im2d2Col|Col2Im|transpose_|SubSample")
"""Convolution kernels whose last buffer is the one they write (the OpenCL sources of MIOpen 1.0 to 2.9)."""
_WRITTEN: Mapping[str, str] = {"forward": "y", "backward-data": "dx", "backward-weights": "dw"}
_READ: Mapping[str, tuple[str, ...]] = {
    "forward": ("x", "w"),
    "backward-data": ("dy", "w"),
    "backward-weights": ("dy", "x"),
}
FIRST_ADDRESS = 1 << 16
"""8 byte arguments below are sizes."""


class KernelKind(msgspec.Struct, frozen=True, gc=False):
    """What all activities of one name, size, program and GEMM have in common."""

    name: KernelName | None
    library: bool
    gemm: Gemm | None
    launch: tuple[str, Size3 | None]
    numbers: frozenset[int]
    forward: bool | None
    role: str


class Fit(msgspec.Struct, frozen=True, gc=False):
    """Points for a kernel in an operation, and which evidence gave them."""

    points: float
    buffers: int
    launched: bool
    named: bool


class Likeness:
    """Points of every pair of kernel and operation, each computed once for pairs that are alike."""

    def __init__(
        self,
        profile: Profile,
        positions: Sequence[int],
        operations: Sequence[Operation],
        facts: Mapping[int, KernelFact],
        without: frozenset[str],
    ) -> None:
        self.operations = operations
        self._buffers = BUFFERS not in without
        self._launches = LAUNCH_LINE not in without
        self._names = NAME_AND_SIZES not in without
        self._programs = profile.opencl.programs
        self._numbers: dict[object, tuple[frozenset[int], bool | None, bool]] = {}
        self._number_of_kind: dict[object, int] = {}
        self.kinds: list[KernelKind] = []
        made = Counter(address for buffer in profile.opencl.buffers if (address := pointer(buffer.handle)))
        self._recycled = {handle for handle, count in made.items() if count > 1}
        self._foreign = FOREIGN_BUFFER if made else FOREIGN_IN_DOUBT
        self.pointers: list[frozenset[int]] = []
        self._inputs: list[frozenset[int]] = []
        self._outputs: list[frozenset[int]] = []
        self._read: list[int] = []
        self._written: list[int] = []
        self._class_of_operation: list[int] = []
        classes: dict[object, int] = {}
        every: set[int] = set()
        workspaces: set[int] = set()
        for operation in operations:
            tensors = operation.tensors if self._buffers else ()
            workspaces.update(address for name, address in tensors if name.lower().startswith("workspace"))
            pointers = frozenset(address for _, address in tensors if address)
            every |= pointers
            self.pointers.append(pointers)
            inputs, outputs = _flow(operation, tensors)
            self._inputs.append(inputs)
            self._outputs.append(outputs)
            key = (
                operation.primitive, operation.direction, operation.phase, operation.input, operation.weights,
                operation.output, operation.algorithm, operation.gemm, operation.launches and operation.launches,
                operation.gemms and operation.gemms,
            )  # fmt: skip
            self._class_of_operation.append(classes.setdefault(key, len(classes)))
        self._every = frozenset(every)
        self._kind: list[int] = []
        self._handles: list[frozenset[int]] = []
        self.together: list[float] = []
        buffers_of: dict[int, tuple[frozenset[int], tuple[int, ...]]] = {}
        before: tuple[int, ...] = ()
        role_before = ""
        convolved = False
        for position in positions:
            activity = profile.activities[position]
            self._kind.append(self._kind_of(activity, facts.get(position)))
            arguments = activity.opencl.arguments
            both = buffers_of.get(id(arguments))
            if both is None:
                own = buffers_among(arguments)
                both = buffers_of[id(arguments)] = self._every.intersection(own), own
            named, buffers = both
            role = self.kinds[self._kind[-1]].role
            self._handles.append(named)
            self._written.append(buffers[-1] if buffers and _WRITES_LAST.match(activity.name) else 0)
            name = self.kinds[self._kind[-1]].name
            convolves = name is not None and (not name.primitives or "conv" in name.primitives)
            self._read.append(buffers[0] if buffers and role in ("im2col", "subsample", "transpose") else 0)
            self.together.append(
                _together(before, role_before, buffers, role, workspaces, convolution=convolves and convolved)
            )
            before, role_before, convolved = buffers, role, convolves
        # A log of commands alone has none of the calls that print no command (miopen-log.md 7).
        self.entered = any(operation.line != operation.command_line for operation in operations)
        self._static: dict[tuple[int, int], tuple[float, bool, bool]] = {}

    # What is known of one kernel

    def kind(self, at: int) -> KernelKind:
        """Of the ``number``-th kernel of the stream."""
        return self.kinds[self._kind[at]]

    def alike(self, at: int, other: int) -> bool:
        """Whether two kernels of the stream differ in nothing but their time."""
        return self._kind[at] == self._kind[other] and self._handles[at] == self._handles[other]

    def kind_number(self, at: int) -> int:
        """Equal for kernels that are alike but for their buffers."""
        return self._kind[at]

    def static_points(self, kind: int, index: int) -> float:
        """Points of a kind of kernel in operation ``index``, buffers aside."""
        return self._pair(kind, index)[0]

    def handles(self, number: int) -> frozenset[int]:
        """The kernel's buffers that some operation names."""
        return self._handles[number]

    def gap(self, number: int) -> float:
        """Points for leaving a kernel outside any operation: cheap for a program's own, dear for the library's."""
        if not self.kind(number).library:
            return FOREIGN_GAP
        return LIBRARY_GAP if self.entered else UNLOGGED_GAP

    def operation_class(self, index: int) -> int:
        """Operations that differ in their place and buffers only have one class."""
        return self._class_of_operation[index]

    def _kind_of(self, activity: Activity, fact: KernelFact | None) -> int:
        name = kernel_name(activity.name)
        if name is not None and not name.miopen:
            name = None
        sized = name is not None and (name.algorithm != "Gemm" or name.role != "main")
        key = (
            activity.name, activity.grid, activity.workgroup, activity.opencl.program,
            id(fact) if fact is not None else 0,
            _integers(activity.opencl.arguments) if sized else (),
        )  # fmt: skip
        number = self._number_of_kind.get(key)
        if number is None:
            numbers, forward, library = self._stated(activity, sized)
            number = self._number_of_kind[key] = len(self.kinds)
            self.kinds.append(
                KernelKind(
                    name=name,
                    library=library or name is not None,
                    gemm=fact.gemm if fact is not None else None,
                    launch=(activity.name, activity.grid),
                    numbers=numbers,
                    forward=forward,
                    role=name.role if name is not None else "",
                )
            )
        return number

    def _stated(self, activity: Activity, sized: bool) -> tuple[frozenset[int], bool | None, bool]:
        """Numbers among build options and arguments, the direction that an option states, whether it is MIOpen's."""
        options = self._programs[activity.opencl.program].options if activity.opencl.program is not None else ""
        stated = self._numbers.get(options)
        if stated is None:
            macros = _MACRO.findall(options)
            forward = next((value != "0" for name, value in macros if name == "MLO_DIR_FORWARD"), None)
            numbers = frozenset(int(value) for _, value in macros)
            stated = self._numbers[options] = numbers, forward, _LIBRARY.search(options) is not None
        if not sized:
            return frozenset(), stated[1], stated[2]
        return stated[0] | set(_integers(activity.opencl.arguments)), stated[1], stated[2]

    # Pairs

    def fit(self, number: int, index: int) -> Fit:
        """The ``number``-th kernel of the stream in operation ``index``, wherever in it."""
        points, launched, named = self._pair(self._kind[number], index)
        handles = self._handles[number]
        matched = 0
        if handles:
            pointers = self.pointers[index]
            if pointers:
                own = len(handles & pointers)
                others = handles - pointers
                foreign = len(others - self._recycled) if others else 0
                if foreign:
                    points += (FOREIGN_IN_DOUBT if self.operations[index].torn else self._foreign) * foreign
                if own:
                    matched = own
                    points += (SOME_BUFFERS if foreign else ALL_BUFFERS) + EACH_BUFFER * own
                    if self._written[number] in self._inputs[index] or self._read[number] in self._outputs[index]:
                        points += AGAINST_FLOW
                elif foreign:
                    points += OTHER_BUFFERS
        return Fit(points, matched, launched, named)

    def _pair(self, kind: int, index: int) -> tuple[float, bool, bool]:
        key = (kind, self._class_of_operation[index])
        points = self._static.get(key)
        if points is None:
            points = self._static[key] = self._alike(self.kinds[kind], self.operations[index])
        return points

    def _alike(self, kind: KernelKind, operation: Operation) -> tuple[float, bool, bool]:
        """Points for what name, sizes and launch lines say, whether a launch line says it, whether the name does."""
        points = 0.0
        launched = False
        if self._launches and operation.launches:
            launched = any((launch.name, launch.gws) == kind.launch for launch in operation.launches)
            named_gemm = kind.name is not None and kind.name.algorithm == "Gemm"
            points += LAUNCHED if launched else 0.0 if named_gemm else NOT_LAUNCHED
        name = kind.name
        if name is None or not self._names:
            if not launched:
                points += UNKNOWN_NAME if kind.library else WRONG_NAME
            return points, launched, False
        primitive = operation.primitive
        uses = _USES.get(primitive, frozenset())
        if not name.primitives:
            points += ANY_PRIMITIVE if name.role != "main" or primitive in _TENSOR else 0.0
        elif primitive in name.primitives or not uses.isdisjoint(name.primitives):
            points += RIGHT_NAME if len(name.directions) == 1 or operation.direction is None else ANY_DIRECTION
            if name.algorithm == "Gemm" and not name.directions and not self.entered:
                points -= ANY_PRIMITIVE
        else:
            return points + WRONG_NAME, launched, False
        if _of_another_direction(kind, name, operation):
            return points + WRONG_NAME, launched, False
        if operation.gemm is not None and primitive == "conv":
            possible = None
            if kind.gemm is not None:
                possible = is_part(kind.gemm, operation)
            elif kind.launch[1] is not None:
                possible = may_be_part(kind.launch[0], kind.launch[1][0], operation)
            if possible is not None:
                points += RIGHT_GEMM if possible else WRONG_GEMM
        if kind.numbers and (name.role == "main" or name.role in ("im2col", "col2im")):
            points += stated_sizes(kind.numbers, operation)
        if operation.algorithm and name.algorithm and operation.phase == "run":
            points += RIGHT_ALGORITHM if operation.algorithm == name.algorithm else WRONG_ALGORITHM
        return points, launched, True

    def is_main(self, number: int, index: int) -> bool:
        """Whether the kernel does the work of the operation, as far as its name tells."""
        kind = self.kind(number)
        return kind.role in ("", "main", "bias") or self.operations[index].primitive in _ONE_HELPER


def _flow(operation: Operation, tensors: Sequence[tuple[str, int]]) -> tuple[frozenset[int], frozenset[int]]:
    """What a convolution only reads and what it only writes; workspaces are neither."""
    if operation.primitive != "conv" or operation.direction is None:
        return frozenset(), frozenset()
    read, written = _READ[operation.direction], _WRITTEN[operation.direction]
    inputs = frozenset(address for name, address in tensors if name in read)
    others = frozenset(address for name, address in tensors if name not in read)
    outputs = frozenset(address for name, address in tensors if name == written)
    return inputs - others, outputs - inputs


def buffers_among(arguments: Sequence[str]) -> tuple[int, ...]:
    """8 byte arguments that may be handles, as the little-endian numbers that they are (dvdt-ck.md 1.3)."""
    return tuple(
        value
        for argument in arguments
        if len(argument) == 16 and (value := number(argument)) is not None and value >= FIRST_ADDRESS
    )


def _together(
    first: tuple[int, ...],
    role: str,
    second: tuple[int, ...],
    second_role: str,
    workspaces: set[int],
    *,
    convolution: bool,
) -> float:
    """Points for two kernels in a row being of one call: the buffers that they share, the last of which they write.

    ``convolution``: both may be of a convolution, as far as their names tell.
    """
    if not first or not second:
        return 0.0
    if first[-1] in second and not (role in _NO_HELP and second_role in _NO_HELP):
        # A workspace is nobody's tensor: who reads it goes on with the same convolution.
        if role in _HELPS_NEXT or (role in _NO_HELP and second_role in POST) or first[-1] in workspaces:
            return HELPED
        if convolution and (role not in _NO_HELP or second_role not in PRE):
            return LIKELY_HELPED
    if len(first) < 2 or len(second) < 2:
        return 0.0
    shared = len(set(first) & set(second))
    if shared >= 2 and first[-1] == second[-1] and shared == len(set(first)) == len(set(second)):
        return SAME_BUFFERS
    return SHARED_BUFFERS if shared >= 2 else 0.0 if shared else APART


def _integers(arguments: Sequence[str]) -> tuple[int, ...]:
    """4 byte arguments as the integers that they may be; what is a float gives a number too large to be a size."""
    return tuple(
        value
        for argument in arguments
        if len(argument) == 8 and (value := number(argument)) is not None and 3 < value < 1 << 24
    )


def _of_another_direction(kind: KernelKind, name: KernelName, operation: Operation) -> bool:
    """Whether the kernel's name, or for a convolution what its options state, denies the operation's direction."""
    direction, primitive = operation.direction, operation.primitive
    if not name.directions or direction is None:
        return False
    if direction not in name.directions and (primitive in name.primitives or primitive == "fusion"):
        return True
    stated = kind.forward if primitive == "conv" and len(name.directions) > 1 else None
    return stated is not None and stated != (direction == "forward")
