"""The kernels of each repetition of a run: of a length that is given, or that is found."""

from __future__ import annotations

from mio2trace.align.layers.period import find_repetition
from mio2trace.kernels.names import kernel_name
from mio2trace.model.profile import Activity, Profile
from mio2trace.notes import InputError, Notes
from mio2trace.reports.kernels import kernels_of, signature


def repetitions(
    profile: Profile, per: int | None, skip: int, names: str, notes: Notes, said: list[str]
) -> list[list[Activity]]:
    """The kernels of each repetition. Raises `InputError` when none is asked for and none is found."""
    found = kernels_of(profile)
    if per is not None:
        groups = [found[start : start + per] for start in range(skip, len(found), per)]
        odd = sum(
            len({repetition[index].name for repetition in groups if index < len(repetition)}) > 1
            for index in range(per)
        )
        if odd:
            notes.add(f"the kernels do not repeat every {per}: {odd} rows mix kernels of several names")
        if groups and len(groups[-1]) < per:
            notes.remark(f"the last repetition has {len(groups[-1])} of {per} kernels")
        return groups
    repetition = find_repetition([signature(activity) for activity in found])
    if repetition is None or 2 * repetition.covered < len(found):
        # A program fills a buffer when it first uses it: what it then repeats is the same without.
        meanings = {name: kernel_name(name) for name in {activity.name for activity in found}}
        fills = {name for name, meaning in meanings.items() if meaning is not None and meaning.role == "fill"}
        kept = [activity for activity in found if activity.name not in fills]
        without = find_repetition([signature(activity) for activity in kept]) if len(kept) < len(found) else None
        if without is not None and 2 * without.covered >= len(kept):
            notes.remark(
                "kernel that only fills a buffer left out: without them the others repeat", "", len(found) - len(kept)
            )
            found, repetition = kept, without
    if repetition is None or 2 * repetition.covered < len(found):
        longest = "nothing comes twice in a row"
        if repetition is not None:
            longest = f"the longest repetition takes {len(repetition.starts)} times {repetition.period}"
        raise InputError(
            f"{names}: its {len(found)} kernels have no period: {longest}, expected at least half of them "
            "(--per N groups them anyway)"
        )
    starts = repetition.starts
    said.append(
        f"period: {repetition.period} kernels, {len(starts)} times, first at call {found[starts[0]].number}; "
        f"{len(found) - repetition.covered} of {len(found)} kernels are in no repetition"
    )
    return [found[start : start + repetition.period] for start in starts]
