"""dv/dt: take calls from their text; calls with the form of earlier calls are not decoded again.

First a part of the profile is searched: at each place the form that followed last time is tried, then other forms of
the same size; a text without a known form is decoded. Nothing is folded before the whole part is understood, so the
reader that handles damage meets any damage in it. A form is made when calls occur for the second time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from mio2trace.model.profile import Profile
from mio2trace.notes import Notes
from mio2trace.readers.opencl.again import fold_of, timed_calls
from mio2trace.readers.opencl.calls import ProfileFolder, time_of
from mio2trace.readers.opencl.forms import Decode, Field, Form, fields_of, proven
from mio2trace.readers.opencl.records import AnyCall, CreateKernel, EnqueueNDRangeKernel, SetKernelArg

# Inside a JSON string every quote is escaped, so this can only be the end of one object and the start of the next.
BETWEEN = re.compile(rb'\}\s*,\s*(?=\{\s*"[\w ]+"\s*:)')
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_ENQUEUE = b'"clEnqueueNDRangeKernel"'
_MOST_ALIKE = 64
_MOST_SIZES = 1 << 16
_LEARNED_AT_FIRST = 2 << 20
_MOST_LEARNED = 8 << 20
"""Bytes of text from which forms may be made: at first, and the same again after each text with a form; one iteration
of a large network."""
_MOST_SKIPPED = 64
"""The most parts that are not searched after a part with few forms."""


Stretch = tuple[int, int, Form | None, Sequence[Any]]
"""The content of bytes of a part, from the first to the last: fields of a form, or decoded calls."""


class _Seconds(dict[bytes, int | None]):
    """Return the time of a stamp's second, by its text; None if it is no second."""

    def __missing__(self, second: bytes) -> int | None:
        at = self[second] = time_of(second.decode())
        return at


class RepeatingFolder(ProfileFolder):
    """A folder that takes text as well as calls: `planned` searches a part, `take` folds it."""

    def __init__(self, source: int, notes: Notes, place: str, host_calls: bool = False) -> None:
        super().__init__(source, notes, place, host_calls)
        self.seconds_of = _Seconds()
        self._forms: dict[int, list[Form]] = {}
        """By size in bytes."""
        self._made: list[Form] = []
        self._sizes: set[int] = set()
        self._words: dict[bytes, tuple[Form, dict[Field, bytes], set[Field]]] = {}
        self._separator = b""
        self._order: list[Form] = []
        """In order of occurrence; the next form is predicted from what followed last time."""
        self._expected = 0
        """The order in which forms of the predicted size are tried."""
        self._repeated = self._learned = 0
        self._skip = self._skipped = 0

    def planned(self, text: bytes, decode: Decode) -> list[Stretch] | None:
        """Return the content of ``text``, an array of whole calls; None if all of it must be decoded."""
        if self._all_calls or self._cut_pointers:
            return None
        if self._skipped < self._skip:
            self._skipped += 1
            return None
        try:
            stretches = self._looked_through(text, decode)
        except UNREADABLE:
            return None
        if stretches is not None:
            repeated = sum([last - first for first, last, form, _ in stretches if form is not None])
            self._repeated += repeated
            few = repeated * 4 < len(text) and self._learned > _LEARNED_AT_FIRST
            self._skip = min(2 * self._skip + 1, _MOST_SKIPPED) if few else 0
            self._skipped = 0
        return stretches

    def _looked_through(self, text: bytes, decode: Decode) -> list[Stretch] | None:
        stretches: list[Stretch] = []
        forms, separator, order, place = self._forms, self._separator, self._order, self._expected
        at, end = 1, text.rfind(b"}") + 1
        if text[end:].strip() != b"]":
            return None
        while at < end:
            form = order[place] if place < len(order) else None
            if form is not None and form.size <= end - at and (fields := form.fields_at(text, at)) is not None:
                stop = at + form.size
                after = stop + len(separator) if stop < end else end
                if stop < end and not text.startswith(separator, stop):
                    return None
                place += 1
            else:
                stop, after = _next_group(text, at, end)
                for form in forms.get(stop - at, ()):
                    if (fields := form.fields_at(text, at)) is not None:
                        break
                else:
                    stretches.append((at, stop, None, decode(b"[%b]" % text[at:stop])))
                    at = after
                    continue
                # The expected form may have been cut at the beginning of the part, or the text may have another form
                # now.
                place += 1
                if order[place : place + 1] == [form]:
                    place += 1
                elif form.last >= 0:
                    place = form.last + 1
            stretches.append((at, stop, form, fields))
            form.last = len(order)
            order.append(form)
            at = after
        self._expected = place
        return stretches

    def take(self, text: bytes, stretches: Sequence[Stretch], decode: Decode) -> None:
        """Fold the calls of ``text``, as `planned` understood them."""
        number, cut = self.calls, self._cut_pointers
        for first, last, form, holds in stretches:
            if form is None:
                self.calls = number
                self.add(holds)
                self._learn(text, first, last, holds, decode)
                number, cut = self.calls, self._cut_pointers
                continue
            for calls, begin, end, fold in form.units:
                if not cut and fold(number, holds):
                    number += calls
                else:
                    self.calls = number
                    self.add(decode(b"[%b]" % text[first + begin : first + end]))
                    number, cut = self.calls, self._cut_pointers
        self.calls = number

    def finish(self, interleaved: bool = False) -> Profile:
        """No more text comes: free the learned forms, which take megabytes and refer to this folder."""
        for form in self._made:
            form.units.clear()
        self._made.clear()
        self._forms.clear()
        self._words.clear()
        self._order.clear()
        return super().finish(interleaved)

    # -- forms --------------------------------------------------------------------------------------------------------

    def _learn(self, text: bytes, first: int, last: int, calls: Sequence[AnyCall], decode: Decode) -> None:
        """Make a form of calls that occurred for the second time, as far as their size shows."""
        if first == 1 or not calls or type(calls[-1]) is not EnqueueNDRangeKernel:
            return  # cut at the beginning or end of the part
        if self._learned > min(_LEARNED_AT_FIRST + self._repeated, _MOST_LEARNED):
            return
        if last - first not in self._sizes:
            if len(self._sizes) < _MOST_SIZES:
                self._sizes.add(last - first)
            return
        borders = list(BETWEEN.finditer(text, first, last))
        if len(borders) + 1 != len(calls):
            return
        self._learned += last - first
        if borders:
            self._separator = borders[-1][0][1:]
        starts = [0, *(border.end() - first for border in borders)]
        ends = [*(border.start() + 1 - first for border in borders), last - first]
        self._learn_group(text[first:last], starts, ends, calls, decode)

    def _learn_group(
        self, text: bytes, starts: Sequence[int], ends: Sequence[int], calls: Sequence[AnyCall], decode: Decode
    ) -> None:
        runs = _runs(calls)
        fields = fields_of(text, starts, calls, {n for first, stop in runs for n in timed_calls(calls, first, stop)})
        if not fields or not proven(text, fields, calls, decode):
            return
        words = {field: text[field.first : field.last] for field in fields if field.kind == "word"}
        key = _what_stays(text, fields)
        changing: set[Field] = set()
        alike = self._forms.setdefault(len(text), [])
        if key in self._words:
            # The same except for handles and values: these become fields now.
            before, old, changing = self._words[key]
            changing = changing | {field for field in words if words[field] != old[field]}
            if before in alike:
                alike.remove(before)
        form = Form(text, [field for field in fields if field not in words or field in changing])
        for first, stop in runs:
            fold = fold_of(self, form, calls, first, stop)
            if fold is None:
                return
            form.units.append((stop - first, starts[first], ends[stop - 1], fold))
        form.places.clear()  # their effect is known now
        self._made.append(form)
        if len(alike) < _MOST_ALIKE:
            alike.append(form)
            self._words[key] = form, words, changing


def _what_stays(text: bytes, fields: Sequence[Field]) -> bytes:
    """Return a hash of the constant text and of the places of the fields."""
    stays = hashlib.sha256()
    end = 0
    for field in fields:
        stays.update(b"%d %d %b" % (field.first, field.last, text[end : field.first]))
        end = field.last
    stays.update(text[end:])
    return stays.digest()


def _next_group(text: bytes, at: int, end: int) -> tuple[int, int]:
    """Return where the next enqueue ends, and where the call after it begins; ``end`` twice if there is none."""
    enqueue = text.find(_ENQUEUE, at, end)
    between = None if enqueue < 0 else BETWEEN.search(text, enqueue, end)
    return (end, end) if between is None else (between.start() + 1, between.end())


def _runs(calls: Sequence[AnyCall]) -> list[tuple[int, int]]:
    """Return the last call (an enqueue) with its settings and the creation of its kernel; earlier calls one by one."""
    first, last = len(calls) - 1, calls[-1]
    assert isinstance(last, EnqueueNDRangeKernel)
    kernel = last.kernel
    while first and _is_for(calls[first - 1], SetKernelArg, kernel):
        first -= 1
    if first and _is_for(calls[first - 1], CreateKernel, kernel):
        first -= 1
    return [*((single, single + 1) for single in range(first)), (first, len(calls))]


def _is_for(call: AnyCall, kind: type[SetKernelArg | CreateKernel], kernel: str) -> bool:
    return type(call) is kind and call.kernel == kernel
