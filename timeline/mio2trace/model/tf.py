"""Records of TensorFlow 1: the nodes of a graph, and their executions step by step (tfprof.md 2, 3, 8).

Times are host times: Unix time in UTC, whole microseconds at the source, kept in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from mio2trace.model import Hidden, LayerName, Name, Word

Shape = tuple[int, ...]
Kind = Literal["cpu", "accelerator", "stream"]
TITLES = {
    "params": "# parameters",
    "float_ops": "# float_ops",
    "bytes": "requested bytes",
    "peak_bytes": "peak bytes",
    "residual_bytes": "residual bytes",
    "output_bytes": "output bytes",
    "micros": "total execution time",
    "accelerator_micros": "accelerator execution time",
    "cpu_micros": "cpu execution time",
}
"""The numbers of a printed view with their titles, in the order of its columns; those without numbers follow."""


class Execution(msgspec.Struct, frozen=True, gc=False):
    """An op, or one of its kernels, on a device (canonical name, lower case), as tfprof groups them (tfprof.md 3.1).
    ``cpu``: the op's code on the host, even if the device is a GPU (then it mostly launches kernels). ``accelerator``:
    kernel time, on a device ``.../stream:all``. ``stream``: kernels and copies of one stream, which a ProfileProto does
    not keep; each kernel is also under ``stream:all``. ``label``: the kernel's name, if there is one."""

    device: Hidden
    kind: Kind
    start_ns: int
    dur_ns: int
    label: Hidden = ""


class OpMemory(msgspec.Struct, frozen=True, gc=False):
    """Memory of one execution on the node's canonical device, in bytes (tfprof.md 2, ExecMemory). ``in_use_bytes``: of
    the GPU allocator, at ``read_ns``; 0 on a CPU."""

    requested_bytes: int = 0
    peak_bytes: int = 0
    residual_bytes: int = 0
    output_bytes: int = 0
    read_ns: int = 0
    in_use_bytes: int = 0


class NodeStep(msgspec.Struct, frozen=True, gc=False):
    """A node in one step. ``start_ns`` to ``end_ns`` covers all its devices; both are 0 if the source has none.
    ``executions`` may be empty: then only copies or single streams were recorded."""

    step: int
    run_count: int
    start_ns: int
    end_ns: int
    executions: tuple[Execution, ...] = ()
    memory: tuple[OpMemory, ...] = ()


class TfNode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A graph node, or a name that only occurs in the run (``op`` then equals the name). ``device``: its canonical
    device, empty if it never ran. ``input_shapes``: (slot, shape), an empty shape if unknown; a scalar is ``(1,)``, an
    unknown dimension -1. ``shape``: of a variable. ``float_ops``: a static estimate for one execution. ``attributes``:
    strides and similar values as text. ``place``: the file name and line that created the node."""

    name: LayerName
    op: LayerName
    op_types: tuple[LayerName, ...] = ()
    device: LayerName = ""
    shape: Shape = ()
    float_ops: int = 0
    input_shapes: tuple[tuple[int, Shape], ...] = ()
    output_shapes: tuple[tuple[int, Shape], ...] = ()
    attributes: Mapping[str, Word] = {}
    place: Name = ""
    steps: tuple[NodeStep, ...] = ()


class TfProfile(msgspec.Struct, frozen=True, kw_only=True):
    """All that one file states. ``steps``: the ids given to ``add_step``. ``numbered``: False if the file has one step
    without its number; the number is then 0. ``memory_known``: False if the source does not record the memory of ops.
    ``graph_known``: False if it records nothing of the graph: shapes, float_ops and types are then unknown, not 0."""

    source: int
    steps: tuple[int, ...]
    nodes: tuple[TfNode, ...]
    numbered: bool = True
    memory_known: bool = True
    graph_known: bool = True


class ViewRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A printed row: numbers as (self, total), rounded as they were printed; None if TensorFlow prints ``--``.
    ``bytes``, ``micros``, ``accelerator_micros``, ``cpu_micros`` are absent if the view does not show them. An op view
    has no total."""

    name: LayerName
    line: int
    own: Mapping[Word, Printed]
    total: Mapping[Word, Printed]


class Printed(msgspec.Struct, frozen=True, gc=False):
    """A number as printed: ``hundredths`` of ``unit`` (``B``, ``KB``, ``MB``, ``us``, ``ms``, ``sec``)."""

    hundredths: int
    unit: Word


class TfView(msgspec.Struct, frozen=True, kw_only=True):
    """A printed scope or op view of a ``step``: -1 is the average over the steps, None an unknown one."""

    source: int
    view: Literal["scope", "op"]
    rows: tuple[ViewRow, ...]
    step: int | None = None
