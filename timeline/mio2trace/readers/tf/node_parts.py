"""What a node of a ProfileProto is made of: pairs, shapes, memory, attributes (tfprof.md 2)."""

from __future__ import annotations

import re

from mio2trace.model.tf import OpMemory, Shape
from mio2trace.readers.tf.wire import Field, fields, numbers, signed, text, unexpected

_WORD = re.compile(r"SAME|VALID|EXPLICIT|N[A-Z]{1,4}|N[A-Z]{1,3}_VECT_[A-Z]", re.ASCII)
"""What padding and data_format can be."""
_TYPES = {1: "float", 2: "double", 3: "int32", 9: "int64", 10: "bool", 14: "bfloat16", 19: "half"}


def int_pair(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """An entry of a map of integers."""
    key = value = 0
    for tag, a, _ in fields(data, at, stop):
        if tag == 0x08:
            key = signed(a)
        elif tag == 0x10:
            value = signed(a)
        else:
            raise unexpected(tag, at)
    return key, value


def slot_shape(data: bytes, at: int, stop: int) -> tuple[int, Shape]:
    """An entry of a map from a slot to a Tuple."""
    slot = 0
    shape: list[int] = []
    for tag, a, b in fields(data, at, stop):
        if tag == 0x08:
            slot = signed(a)
        elif tag == 0x12:
            shape = shape_of(data, a, b)
        else:
            raise unexpected(tag, at)
    return slot, tuple(shape)


def shape_of(data: bytes, at: int, stop: int) -> list[int]:
    """A Tuple: its integers, packed or not."""
    integers: list[int] = []
    for tag, a, b in fields(data, at, stop):
        if tag == 0x0A:
            integers += numbers(data, a, b)
        elif tag == 0x08:
            integers.append(signed(a))
        else:
            raise unexpected(tag, at)
    return integers


def memory_of(data: bytes, at: int, stop: int) -> OpMemory:
    """ExecMemory; the memory of single outputs is left out."""
    read = requested = peak = residual = output = in_use = 0
    for tag, a, _ in fields(data, at, stop):
        if tag == 0x08:
            read = signed(a) * 1000
        elif tag == 0x30:
            requested = signed(a)
        elif tag == 0x38:
            peak = signed(a)
        elif tag == 0x40:
            residual = signed(a)
        elif tag == 0x48:
            output = signed(a)
        elif tag == 0x50:
            in_use = signed(a)
        elif tag >> 3 in (1, 6, 7, 8, 9, 10):
            raise unexpected(tag, at)
    return OpMemory(requested, peak, residual, output, read, in_use)


def attribute_text(data: bytes, value: list[Field]) -> str:
    """An AttrValue as text: ``SAME``, ``float``, ``1x2x2x1``; empty when it is something else."""
    for tag, a, b in value:
        if tag == 0x12:
            word = text(data, a, b)
            return word if _WORD.fullmatch(word) else ""
        if tag == 0x30:
            return _TYPES.get(a, f"type {a}")
        if tag == 0x0A:
            lengths: list[int] = []
            for inner, c, d in fields(data, a, b):
                if inner == 0x1A:
                    lengths += numbers(data, c, d)
                elif inner == 0x18:
                    lengths.append(signed(c))
            return "x".join(map(str, lengths))
    return ""
