"""What an op was given: ``Input Dims``, ``Input type``, ``Input Strides``, ``Concrete Inputs`` of its arguments."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mio2trace.model.profile import Inputs
from mio2trace.notes import Notes

_NOTHING = msgspec.Raw(b"")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
DTYPES = {
    "float": "float", "double": "double", "c10::Half": "half", "c10::BFloat16": "bfloat16", "long": "int64",
    "long int": "int64", "int": "int32", "short": "int16", "signed char": "int8", "unsigned char": "uint8",
    "bool": "bool", "c10::Float8_e4m3fn": "float8", "c10::Float8_e4m3fnuz": "float8", "c10::Float8_e5m2": "bfloat8",
    "c10::Float8_e5m2fnuz": "bfloat8", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
}  # fmt: skip
"""PyTorch's names in the words of the driver. Of a list of tensors and of what is no tensor none is told."""


Id = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class OpArgs(msgspec.Struct, gc=False):
    external: Id | None = msgspec.field(name="External id", default=None)
    sequence: Id | None = msgspec.field(name="Sequence number", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_NOTHING)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NOTHING)


_ARGS = msgspec.json.Decoder(OpArgs)
_Lengths = tuple[int | tuple[int, ...], ...]
_SHAPES = msgspec.json.Decoder(tuple[_Lengths | None, ...])
_WORDS = msgspec.json.Decoder(tuple[str, ...])


class InputsCache:
    """Equal inputs are one object: a network does the same in each step."""

    def __init__(self, notes: Notes, place: str) -> None:
        self._notes = notes
        self._place = place
        self._made: dict[tuple[bytes, bytes, bytes, bytes], Inputs | None] = {}

    def args(self, text: msgspec.Raw) -> OpArgs:
        try:
            return _ARGS.decode(text)
        except _UNREADABLE:
            lenient: OpArgs = self.leniently(OpArgs, text)
            return lenient

    def leniently(self, kind: type[Any], text: msgspec.Raw) -> Any:
        """Numbers may be text; what is still no such arguments is counted, and nothing is known of them."""
        try:
            return msgspec.json.decode(text, type=kind, strict=False)
        except _UNREADABLE:
            self._notes.add("arguments of a row that could not be read", self._place)
            return kind()

    def of(self, args: OpArgs) -> Inputs | None:
        """None where none were recorded."""
        dims = bytes(args.dims)
        if not dims:
            return None
        key = dims, bytes(args.types), bytes(args.strides), bytes(args.values)
        if key not in self._made:
            self._made[key] = self._inputs(*key)
        return self._made[key]

    def _inputs(self, dims: bytes, types: bytes, strides: bytes, values: bytes) -> Inputs | None:
        try:
            return Inputs(
                _SHAPES.decode(dims),  # type: ignore[arg-type]
                tuple(DTYPES.get(word, "") for word in _WORDS.decode(types or b"[]")),
                _SHAPES.decode(strides or b"[]"),  # type: ignore[arg-type]
                _WORDS.decode(values or b"[]"),
            )
        except _UNREADABLE:
            self._notes.add("inputs of an op that could not be read", self._place)
            return None
