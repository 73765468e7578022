"""The kernels and copies of steady iterations in columns: everything that is ranked sums over them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from mio2trace.align import NONE
from mio2trace.kernels import KernelFact
from mio2trace.measures.kinds import Kind, kind_of, numbered_names
from mio2trace.model.profile import Activity

if TYPE_CHECKING:
    from mio2trace.measures import Measures


class Form(NamedTuple):
    """What kernels have in common that their name and its facts say alike: ``kind``; the first one's fact."""

    name: str
    kind: Kind
    fact: KernelFact | None


class Counted(NamedTuple):
    """``names`` and ``name_of``: of all kernels, as `numbered_names`.

    The activities of steady iterations: ``positions`` of all. Of kernels with times: ``kernels`` the position,
    ``places`` the iteration's place, ``ns`` the time, ``form_of`` the place in ``forms``.

    ``helping``: position, time and kind of those kernels that help, or are naive. ``others``: copies, and kernels
    without times. ``unsure``: positions of those in doubt. ``worked``, ``work_of``: where operations' work counts, and
    how much; ``other_work``: where else, how much (None: of unknown size), and what tells it, as `Measures.work`.
    """

    names: Sequence[str]
    name_of: Sequence[int]
    positions: Sequence[int]
    kernels: Sequence[int]
    places: Sequence[int]
    ns: Sequence[int]
    form_of: Sequence[int]
    forms: Sequence[Form]
    helping: Sequence[tuple[int, int, Kind]]
    others: Sequence[tuple[int, Activity]]
    unsure: Sequence[int]
    worked: Sequence[int]
    work_of: Sequence[int]
    other_work: Sequence[tuple[int, int | None, str]]


def counted(measures: Measures, places: Sequence[int]) -> Counted:
    """``places``: of each activity its iteration's place among the steady ones, `NONE` where it is in none."""
    links = measures.alignment.links
    activities = measures.alignment.profile.activities
    names, name_of = numbered_names(activities)
    # What is numbered from 0 goes into arrays: there may be a million of each.
    positions = array("q", [position for position, place in enumerate(places) if place != NONE])
    kernels = array("q")
    times: list[int] = []
    others: list[tuple[int, Activity]] = []
    for position in positions:
        activity = activities[position]
        start, end = activity.start_ns, activity.end_ns
        if start is None or end is None or name_of[position] == NONE:
            others.append((position, activity))
        else:
            kernels.append(position)
            times.append(end - start)
    form_of, forms = _forms(measures, kernels, name_of)
    worked, work_of, other_work = array("q"), [], []
    for position, _, flop, told_by in measures.work():
        if places[position] == NONE:
            continue
        if told_by == "operation" and flop is not None:
            worked.append(position)
            work_of.append(flop)
        else:
            other_work.append((position, flop, told_by))
    return Counted(
        names=names,
        name_of=name_of,
        positions=positions,
        kernels=kernels,
        places=array("q", map(places.__getitem__, kernels)),
        ns=times,
        form_of=form_of,
        forms=forms,
        helping=_helping(measures, kernels, times, form_of, forms),
        others=others,
        unsure=[position for position in links.layer_unsure | links.operation_unsure if places[position] != NONE],
        worked=worked,
        work_of=work_of,
        other_work=other_work,
    )


def _forms(measures: Measures, kernels: Sequence[int], name_of: Sequence[int]) -> tuple[Sequence[int], list[Form]]:
    """Of each kernel the place of its form, and the forms: looked up once for all kernels that are alike."""
    facts, activities = measures.alignment.facts, measures.alignment.profile.activities
    keys: list[object] = [*map(name_of.__getitem__, kernels)]
    if facts:
        for place, position in enumerate(kernels):
            fact = facts.get(position)
            if fact is not None:
                keys[place] = keys[place], fact.role, fact.gemm is not None
    first: dict[object, int] = {}
    for place, key in enumerate(keys):
        if key not in first:
            first[key] = place
    numbers = {key: number for number, key in enumerate(first)}
    forms = []
    for place in first.values():
        position = kernels[place]
        name, fact = activities[position].name, facts.get(position)
        forms.append(Form(name, kind_of(name, fact), fact))
    return array("q", map(numbers.__getitem__, keys)), forms


def _helping(
    measures: Measures, kernels: Sequence[int], times: Sequence[int], form_of: Sequence[int], forms: Sequence[Form]
) -> list[tuple[int, int, Kind]]:
    naive, operation_of = measures.naive_operations, measures.alignment.links.operation_of
    told = [form.kind.helps or form.kind.naive or form.kind.role == "transpose" for form in forms]
    if not (any(told) or naive):
        return []
    helping = []
    chosen = map(told.__getitem__, form_of)
    if naive:
        chosen = map(bool.__or__, chosen, map(naive.__contains__, map(operation_of.__getitem__, kernels)))
    for position, ns, number in compress(zip(kernels, times, form_of, strict=True), chosen):
        kind = forms[number].kind
        helping.append((position, ns, kind._replace(naive=kind.naive or operation_of[position] in naive)))
    return helping
