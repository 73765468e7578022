"""StepStats as text: the output of ``--trace_file`` without Chrome's format (tfprof.md 8).

    dev_stats {
      device: "/job:localhost/replica:0/task:0/device:CPU:0"
      node_stats {
        node_name: "v/tower_0/cg/Relu"
        all_start_micros: 1795171473772142
        ...

The text format of protocol buffers, in any layout. It is read like the bytes in `step_stats`. A record that is cut
off is skipped.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, TypeVar

from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.readers.tf.step_stats import OpStats, collect
from mio2trace.source import Source

NAME = "TensorFlow step statistics (text)"

_SNIFF = late(rb"\s*+(?>(?:#[^\n]*+\s*+)*)(?:step_stats\s*+:?\s*+\{\s*+)?dev_stats\s*+:?\s*+[{<]")
_TOKEN = late(
    rb"\s*+(?>(?:#[^\n]*+\n\s*+)*)(?:(?P<name>[A-Za-z_]\w*)|(?P<sign>[{}<>:;,\[\]])"
    rb"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')|(?P<number>[-+.\w]+))"
)
_ESCAPE = late(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_INTEGER = late(rb"[-+]?[0-9]+")
_LONGEST_INTEGER = 21
_DEEPEST = 100
Message = dict[str, list[Any]]
Value = TypeVar("Value", int, str)


def sniff(head: bytes) -> bool:
    """Return whether it is text that begins with a device's statistics."""
    return _SNIFF.match(head) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the step. Raises `InputError` if none of its records can be read."""
    message = parse(source.read(), source.name, notes)
    stats = [
        (_last(device, "device", ""), [_op(op) for op in _messages(device, "node_stats")])
        for step in _messages(message, "step_stats") or [message]
        for device in _messages(step, "dev_stats")
    ]
    return [collect(stats, source.index, source.name, notes)]


def parse(data: bytes, place: str, notes: Notes) -> Message:
    """Return the fields of a message by name: numbers, texts, messages. A cut part is left out, with a note."""
    stack: list[Message] = [{}]
    name = ""
    at, size = 0, len(data.rstrip())
    while at < size and (found := _TOKEN.match(data, at)) is not None:
        if found["name"] and not name:
            name = found["name"].decode()
        elif (sign := found["sign"]) is not None:
            if sign in b"{<" and name and len(stack) <= _DEEPEST:
                inner: Message = {}
                stack[-1].setdefault(name, []).append(inner)
                stack.append(inner)
                name = ""
            elif sign in b"}>" and not name and len(stack) > 1:
                stack.pop()
            elif sign not in b":;,":
                break
        elif not name:
            break
        else:
            stack[-1].setdefault(name, []).append(_value(found, place, notes))
            name = ""
        at = found.end()
    if at < size or len(stack) > 1 or name:
        line = data.count(b"\n", 0, at) + 1
        if b"\n" not in data[at:].rstrip():
            notes.cut_off(place, f"line {line}")
        else:
            notes.add("step statistics damaged: read up to there", f"{place}: line {line}")
        for outer, inner in pairwise(stack):
            if outer.get("node_stats", [None])[-1] is inner:  # the incomplete record of an op
                outer["node_stats"].pop()
                break
    return stack[0]


def _value(found: re.Match[bytes], place: str, notes: Notes) -> int | str:
    """Return a text, a word, or a number, which has 64 bits as in the binary message."""
    quoted = found["text"]
    if quoted is not None:
        return _ESCAPE.sub(_unescaped, quoted[1:-1]).decode("utf-8", "replace")
    raw: bytes = found["number"] or found["name"]
    if _INTEGER.fullmatch(raw) is None:
        return raw.decode(errors="replace")
    if len(raw) > _LONGEST_INTEGER or not -(1 << 63) <= int(raw) < 1 << 64:
        notes.add("number of more than 64 bits: skipped", place)
        return ""
    return int(raw)


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = found.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    return _LETTERS.get(letter, letter)


def _messages(message: Message, name: str) -> list[Message]:
    return [one for one in message.get(name, []) if isinstance(one, dict)]


def _last(message: Message, name: str, without: Value) -> Value:
    """Return the last value, as protocol buffers do; ``without`` if there is none of its type."""
    value = (message.get(name) or [without])[-1]
    return value if isinstance(value, type(without)) else without


def _number(message: Message, name: str) -> int:
    return _last(message, name, 0)


def _op(message: Message) -> OpStats:
    start, end = _number(message, "all_start_micros"), _number(message, "op_end_rel_micros")
    op = OpStats(_last(message, "node_name", ""), start, end, _last(message, "timeline_label", ""), shapes=[])
    for allocator in _messages(message, "memory"):
        op.total_bytes += _number(allocator, "total_bytes")
        op.peak_bytes += _number(allocator, "peak_bytes")
        op.live_bytes += _number(allocator, "live_bytes")
        op.in_use_bytes = _number(allocator, "allocator_bytes_in_use")
    for memory in _messages(message, "memory_stats"):
        op.temporary_bytes += _number(memory, "temp_memory_size")
        op.kept_bytes += _number(memory, "persistent_memory_size")
    for output in _messages(message, "output"):
        for tensor in _messages(output, "tensor_description"):
            for allocation in _messages(tensor, "allocation_description"):
                op.output_bytes += max(_number(allocation, "requested_bytes"), _number(allocation, "allocated_bytes"))
            for shape in _messages(tensor, "shape"):
                if "unknown_rank" not in shape:
                    # A scalar is (1,), as in a ProfileProto.
                    sizes = tuple(_number(dim, "size") for dim in _messages(shape, "dim")) or (1,)
                    op.shapes.append((_number(output, "slot"), sizes))
    return op
