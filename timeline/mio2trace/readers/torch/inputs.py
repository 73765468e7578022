"""The inputs of an op: ``Input Dims``, ``Input type``, ``Input Strides``, ``Concrete Inputs`` of its arguments."""

from __future__ import annotations

import re

import msgspec

from mio2trace.model.profile import Collective, Inputs
from mio2trace.notes import Notes
from mio2trace.patterns import late
from mio2trace.readers.pieces import UNREADABLE
from mio2trace.readers.torch.event_array import NOTHING, Args

DTYPES = {
    "float": "float", "double": "double", "c10::Half": "half", "c10::BFloat16": "bfloat16", "long": "int64",
    "long int": "int64", "int": "int32", "short": "int16", "signed char": "int8", "unsigned char": "uint8",
    "bool": "bool", "c10::Float8_e4m3fn": "float8", "c10::Float8_e4m3fnuz": "float8", "c10::Float8_e5m2": "bfloat8",
    "c10::Float8_e5m2fnuz": "bfloat8", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
}  # fmt: skip
"""PyTorch's names of types in the words of the driver. Inputs that are no tensors have no type."""


_COMM_DTYPES = {
    "Float": "float", "Half": "half", "BFloat16": "bfloat16", "Double": "double", "Int": "int32", "Long": "int64",
    "Byte": "uint8", "Char": "int8", "Bool": "bool", "Short": "int16", "Float8_e4m3fn": "float8",
    "Float8_e4m3fnuz": "float8", "Float8_e5m2": "bfloat8", "Float8_e5m2fnuz": "bfloat8",
}  # fmt: skip
_MOST = 1 << 48
_COLLECTIVE = late(rb'"(?=[a-z_]*?(?:all|reduce|gather|scatter|broadcast|send|recv|receive|barrier))([a-z_]{1,24})"')
"""``allreduce``, ``_allgather_base``: words of collectives without digits, so no key or token."""
_FILE = late(r"(?:^|/)((?:c[a-z2-7]{51}|[A-Za-z]{1,24}[0-9]{0,3}(?:_[A-Za-z]{0,24}[0-9]{0,3}){0,8})\.py)$")
"""TorchInductor's hash, or words: no key or token."""
_LONGEST_FILE = 240
_NAME = late(rb'"([A-Za-z0-9_]{1,40})"')


def _word(text: msgspec.Raw, form: re.Pattern[bytes] = _NAME) -> str:
    found = form.fullmatch(bytes(text).strip())
    return found[1].decode() if found is not None else ""


def _file(value: object) -> str:
    if not isinstance(value, str):
        return ""
    found = _FILE.search(value[-_LONGEST_FILE:])
    return "" if found is None else found[1]


_Lengths = tuple[int | tuple[int, ...], ...]
_SHAPES = msgspec.json.Decoder(tuple[_Lengths | None, ...])
_WORDS = msgspec.json.Decoder(tuple[str, ...])


class InputsCache:
    """Equal inputs are one object: a network repeats them in each step."""

    def __init__(self, notes: Notes, place: str) -> None:
        self._notes = notes
        self._place = place
        self._made: dict[bytes, Inputs | None] = {}

    def of(self, args: Args) -> Inputs | None:
        """Return the inputs; None if none were recorded."""
        if args.collective is not NOTHING:
            return self._of_collective(args)
        kernel_file = "" if args.kernel_file is None else _file(args.kernel_file)
        dims = args.dims if args.dims is not NOTHING else args.dims_before
        if dims is NOTHING and not kernel_file:
            return None
        key = b"|".join((dims, args.types, args.strides, args.values, kernel_file.encode()))
        try:
            return self._made[key]
        except KeyError:
            made = self._made[key] = self._inputs(args, dims, kernel_file)
            return made

    def _of_collective(self, args: Args) -> Inputs:
        """Return the message of a collective; its other inputs are only its tensors again."""
        given = args.sent, args.received, args.ranks
        numbers = tuple(one if type(one) is int and 0 <= one < _MOST else None for one in given)
        key = b"|".join((args.collective, args.dtype, args.group, repr(numbers).encode()))
        made = self._made.get(key)
        if made is None:
            name = _word(args.collective, _COLLECTIVE)
            dtype, group = _word(args.dtype), _word(args.group)
            sent, received, ranks = numbers
            made = self._made[key] = Inputs(
                collective=Collective(
                    name, _COMM_DTYPES.get(dtype, ""), sent or 0, received or 0, ranks,
                    int(group) if group.isdecimal() and len(group) < 10 else None,
                )
            )  # fmt: skip
        return made

    def _inputs(self, args: Args, dims: msgspec.Raw, kernel_file: str) -> Inputs | None:
        try:
            return Inputs(
                _SHAPES.decode(bytes(dims) or b"[]"),  # type: ignore[arg-type]
                tuple(DTYPES.get(word, "") for word in _WORDS.decode(bytes(args.types) or b"[]")),
                _SHAPES.decode(bytes(args.strides) or b"[]"),  # type: ignore[arg-type]
                _WORDS.decode(bytes(args.values) or b"[]"),
                kernel_file=kernel_file,
            )
        except UNREADABLE:
            self._notes.add("inputs of an op that could not be read", self._place)
            return None
