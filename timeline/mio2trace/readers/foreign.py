"""Lines of other programs, passed over many at a time.

A training run prints far more than Caffe and MIOpen do. A line in which none of the words stands that a decoder looks
for is none of theirs; where the next such word stands is looked up once for each word and piece of bytes.
"""

from __future__ import annotations

import re

from mio2trace.patterns import late
from mio2trace.readers.blas.lines import WORDS as BLAS_WORDS
from mio2trace.readers.caffe.log import GLOG_HEAD
from mio2trace.readers.miopen.lines import BEGINNINGS, WORDS

MARKER = b"[dv/dt]"
_TEXTS = (MARKER, *WORDS, *BLAS_WORDS)
_PATTERNS = (GLOG_HEAD, late(rb"\n(?:" + b"|".join(map(re.escape, BEGINNINGS)) + rb")"))
_FAR = 1 << 62


class OtherPrograms:
    """For bytes that begin a line at every place that is asked for."""

    def __init__(self) -> None:
        self._data = b""
        self._end = 0
        self._texts: list[int] = []
        self._patterns: list[int] = []

    def until(self, data: bytes, at: int) -> int:
        """Where the first line from ``at`` on begins that may be one of ours, or that has no end."""
        if data is not self._data:
            self._data = data
            self._end = data.rfind(b"\n") + 1
            self._texts = [-1] * len(_TEXTS)
            self._patterns = [-1] * len(_PATTERNS)
        nearest = self._end
        if not at and data.startswith(BEGINNINGS):
            return at
        texts = self._texts
        for number, place in enumerate(texts):
            if place < at:
                place = data.find(_TEXTS[number], at)
                texts[number] = place = _FAR if place < 0 else place
            if place < nearest:
                nearest = place
        patterns = self._patterns
        for number, place in enumerate(patterns):
            if place < at:  # a beginning has the end of the line before it
                found = _PATTERNS[number].search(data, max(0, at - 1))
                patterns[number] = place = _FAR if found is None else found.end() - 1
            if place < nearest:
                nearest = place
        return max(at, data.rfind(b"\n", at, nearest) + 1)
