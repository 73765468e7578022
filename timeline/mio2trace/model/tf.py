"""Records of TensorFlow 1: the nodes of a graph, and their executions step by step (tfprof.md 2, 3, 8).

Times are host times: Unix time in UTC, whole microseconds at the source, kept in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from mio2trace.model.columns import Hidden, LayerName, Name, Word

Shape = tuple[int, ...]
Kind = Literal["cpu", "accelerator", "stream"]


class Execution(msgspec.Struct, frozen=True, gc=False):
    """An op, or one of its kernels, on a device (canonical name, lower case), as tfprof sorts them (tfprof.md 3.1).

    ``cpu``: the op's code on the host, even where the device is a GPU (then it is mostly launching). ``accelerator``:
    kernel time, on a device ``.../stream:all``. ``stream``: kernels and copies on one stream, which a ProfileProto does
    not keep; the same kernel is under ``stream:all``, too. ``label`` is the kernel's name, where there is one.
    """

    device: Hidden
    kind: Kind
    start_ns: int
    dur_ns: int
    label: Hidden = ""


class OpMemory(msgspec.Struct, frozen=True, gc=False):
    """Memory of one execution on the node's canonical device, in bytes (tfprof.md 2, ExecMemory).

    ``in_use_bytes`` is the GPU allocator's, at ``read_ns``; 0 on a CPU.
    """

    requested_bytes: int = 0
    peak_bytes: int = 0
    residual_bytes: int = 0
    output_bytes: int = 0
    read_ns: int = 0
    in_use_bytes: int = 0


class NodeStep(msgspec.Struct, frozen=True, gc=False):
    """A node in one step. ``start_ns`` to ``end_ns`` covers all its devices; both are 0 where the source has none.

    ``executions`` may be empty: only copies or single streams were seen.
    """

    step: int
    run_count: int
    start_ns: int
    end_ns: int
    executions: tuple[Execution, ...] = ()
    memory: tuple[OpMemory, ...] = ()


class TfNode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A graph node, or a name that only the run knows (``op`` then equals the name).

    ``device`` is its canonical device, empty when it never ran. ``input_shapes``: (slot, shape), an empty shape when
    unknown; a scalar is ``(1,)``, an unknown dimension -1. ``shape`` is that of a variable. ``float_ops`` is a static
    estimate for one execution. ``attributes`` hold strides and their like as text; ``place`` is the file name and line
    that created the node.
    """

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
    """All that one file states. ``steps`` are the ids given to ``add_step``.

    ``numbered`` is False if the file has one step without its number; the number is 0 then.

    ``memory_known`` is False if the source does not record an op's memory. ``graph_known`` is False if it records
    nothing of the graph: shapes, float_ops and types are then unknown, not 0.
    """

    source: int
    steps: tuple[int, ...]
    nodes: tuple[TfNode, ...]
    numbered: bool = True
    memory_known: bool = True
    graph_known: bool = True


class ViewRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A printed row: numbers as (self, total), rounded as they were printed; None where it prints ``--``.

    ``bytes``, ``micros``, ``accelerator_micros``, ``cpu_micros`` are absent where the view does not show them. An op
    view has no total.
    """

    name: LayerName
    line: int
    own: Mapping[Word, Printed]
    total: Mapping[Word, Printed]


class Printed(msgspec.Struct, frozen=True, gc=False):
    """A number as printed: ``hundredths`` of ``unit`` (``B``, ``KB``, ``MB``, ``us``, ``ms``, ``sec``)."""

    hundredths: int
    unit: Word


class TfView(msgspec.Struct, frozen=True, kw_only=True):
    """A printed scope or op view: one step, or the average over the steps when ``step`` is -1; None: not told."""

    source: int
    view: Literal["scope", "op"]
    rows: tuple[ViewRow, ...]
    step: int | None = None
