"""A log of MIOpen decoded in pieces of any size."""

from __future__ import annotations

from collections.abc import Iterable

from mio2trace.model.miopen import MiopenLog
from mio2trace.notes import Notes
from mio2trace.readers.miopen import MiopenDecoder


def decoded(blocks: Iterable[bytes]) -> MiopenLog:
    """A log that holds nothing but MIOpen's lines and lines to pass over."""
    decoder = MiopenDecoder(0, Notes())
    number, rest = 1, b""
    for block in blocks:
        number, rest = _whole_records(decoder, number, (rest + block).replace(b"\r\n", b"\n"))
    *whole, last = rest.split(b"\n")
    for line in [*(one + b"\n" for one in whole), last]:
        if line:
            decoder.feed(number, line)
        number += 1
    return decoder.finish()


def _whole_records(decoder: MiopenDecoder, number: int, data: bytes) -> tuple[int, bytes]:
    """The number of the next line, and what of ``data`` is not a whole record."""
    at = 0
    while True:
        at, number, more = decoder.take(data, at, number)
        end = data.find(b"\n", at) + 1
        if more or not end:
            return number, data[at:]
        decoder.feed(number, data[at:end])
        at = end
        number += 1
