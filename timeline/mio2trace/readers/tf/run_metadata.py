"""RunMetadata of one ``session.run``, or only its StepStats, as bytes (tfprof.md 8).

    0a 86 d9 06                    step_stats, 109702 bytes
       0a 82 d9 06                 dev_stats, one per device
          0a 2c /job:localhost/... device; 12 4d: node_stats { 0a name, 10 all_start_micros, 20 op_end_rel_micros }

Read: names, times in us, memory, output shapes, labels. A cut file is read up to its end; a damaged record is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from mio2trace.model.tf import Shape
from mio2trace.notes import Notes
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.tf.step_stats import DeviceStats, OpStats, collect
from mio2trace.readers.tf.wire import Walk, WireError, fields, integers, signed, text, unexpected, varint
from mio2trace.source import Source

NAME = "TensorFlow step statistics (RunMetadata)"


def sniff(head: bytes) -> bool:
    """Return whether it begins with two or three nested first fields, the innermost a device's name."""
    return _depth(head) > 0


def _depth(head: bytes) -> int:
    """Return 2 for StepStats, 3 for RunMetadata, 0 for anything else."""
    at, left = 0, 1 << 63
    for depth in range(1, 4):
        if head[at : at + 1] != b"\x0a":
            break
        try:
            size, at = varint(head, at + 1, len(head))
        except WireError:
            break
        if size >= left:
            break
        left = size
        if depth > 1 and head[at : at + 5] in (b"/job:", b"/devi"):
            return depth
    return 0


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the step. Raises `InputError` if none of its records can be read."""
    data = source.read()
    return [collect(list(_Decoder(data, source.name, notes).devices(_depth(data))), source.index, source.name, notes)]


class _Decoder:
    def __init__(self, data: bytes, place: str, notes: Notes) -> None:
        self._data = data
        self._place = place
        self._notes = notes
        self._walk = Walk(data, place, notes, "step statistics damaged: read up to there")

    def devices(self, depth: int) -> Iterator[DeviceStats]:
        whole = [(0x0A, 0, len(self._data))]
        for tag, at, stop in self._walk.parts(0, len(self._data)) if depth == 3 else whole:
            for inner, a, b in self._walk.parts(at, stop) if tag == 0x0A else ():
                if inner == 0x0A:
                    yield self._device(a, b)

    def _device(self, at: int, stop: int) -> DeviceStats:
        ops: list[OpStats] = []
        device = ""
        for tag, a, b in self._walk.parts(at, stop):
            if tag == 0x0A:
                device = text(self._data, a, b)
            elif tag == 0x12:
                try:
                    ops.append(self._op(a, b))
                except WireError as error:
                    self._notes.add("damaged record of an op: skipped", f"{self._place}: {error}")
        return device, ops

    def _op(self, at: int, stop: int) -> OpStats:
        data = self._data
        op = OpStats(shapes=[])
        for tag, a, b in fields(data, at, stop):
            if tag == 0x0A:
                op.name = text(data, a, b)
            elif tag == 0x10:
                op.start_us = signed(a)
            elif tag == 0x20:
                op.op_end_us = signed(a)
            elif tag == 0x42:
                op.label = text(data, a, b)
            elif tag == 0x32:
                memory = integers(data, a, b)
                op.total_bytes += memory[2]
                op.peak_bytes += memory[3]
                op.live_bytes += memory[4]
                op.in_use_bytes = memory.get(5, op.in_use_bytes)
            elif tag == 0x3A:
                self._output(op, a, b)
            elif tag == 0x62:
                memory = integers(data, a, b)
                op.temporary_bytes += memory[1]
                op.kept_bytes += memory[3]
            elif tag >> 3 in (1, 2, 4, 6, 7, 8, 12):
                raise unexpected(tag, at)
        return op

    def _output(self, op: OpStats, at: int, stop: int) -> None:
        data = self._data
        slot, shape = 0, None
        for tag, a, b in fields(data, at, stop):
            if tag == 0x08:
                slot = signed(a)
            elif tag == 0x1A:
                for inner, c, d in fields(data, a, b):
                    if inner == 0x12:
                        shape = self._shape(c, d)
                    elif inner == 0x22:
                        allocation = integers(data, c, d)
                        op.output_bytes += max(allocation[1], allocation[2])
        if shape is not None:
            op.shapes.append((slot, shape))

    def _shape(self, at: int, stop: int) -> Shape | None:
        """Return a tensor's shape; a scalar is (1,), as in a ProfileProto."""
        dims: list[int] = []
        for tag, a, b in fields(self._data, at, stop):
            if tag == 0x12:
                dims.append(next((signed(value) for inner, value, _ in fields(self._data, a, b) if inner == 0x08), 0))
            elif tag == 0x18 and a:
                return None
        return tuple(dims) or (1,)
