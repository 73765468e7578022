"""What types do not say of a snapshot: lengths that belong together, places in lists that its records name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mio2trace.evidence import EVIDENCE
from mio2trace.model.places import misplaced
from mio2trace.model.profile import Profile
from mio2trace.snapshot.records import KeptAlignment, KeptRun, Snapshot

_NONE = -1
_LATEST = 1 << 63


def wrong_in(snapshot: Snapshot) -> str:
    """What is wrong first, in words; empty for what the program could have written."""
    return next((wrong for run in (*snapshot.runs, *snapshot.repetitions) for wrong in _of_run(run)), "")


def _of_run(run: KeptRun) -> Iterator[str]:
    alignments = [*run.alignments, *((run.framework,) if run.framework is not None else ())]
    reference = run.reference
    if reference is not None:
        alignments += reference.alignments
        if len(reference.of) != len(reference.alignments):
            yield f"{len(reference.of)} places of {len(reference.alignments)} runs without a log"
        yield from _places("run without a log of", reference.of, len(run.alignments))
    if len(run.operations_by_log) != len(run.libraries):
        yield f"operations of {len(run.operations_by_log)} of {len(run.libraries)} logs"
    if run.alignments and len(run.shares) not in (0, len(run.alignments)):
        yield f"logs of {len(run.shares)} of {len(run.alignments)} processes"
    if not run.inputs:
        yield "a run of no files"
    for profile in {id(one): one for one in (*run.profiles, *(one.profile for one in alignments))}.values():
        yield from _of_profile(profile)
    for alignment in {id(one): one for one in alignments}.values():
        yield from _of_links(alignment)


def _of_profile(profile: Profile) -> Iterator[str]:
    wrong = misplaced(profile)
    if wrong:
        yield wrong
    if profile.activities and not (profile.clocks and profile.devices and profile.queues):
        yield "activities of no queue, device or clock"
    for one in profile.activities:
        if one.start_ns is not None and one.end_ns is not None and not -_LATEST <= one.start_ns <= one.end_ns < _LATEST:
            yield f"an activity from {one.start_ns} to {one.end_ns} ns"


def _of_links(alignment: KeptAlignment) -> Iterator[str]:
    links, count = alignment.links, len(alignment.profile.activities)
    columns = links.run_of, links.pass_of, links.operation_of, links.layer_by, links.operation_by
    if {len(column) for column in columns} != {count}:
        yield f"links of {min(map(len, columns))} to {max(map(len, columns))} of {count} activities"
    words = {*links.layer_by, *links.operation_by} - {"", *EVIDENCE}
    if words:
        yield f"evidence that is none: {min(words)!r}"
    indexes = {operation.index for operation in links.operations}
    if len(indexes) != len(links.operations):
        yield "two operations of one number"
    stray = set(links.operation_of) - indexes - {_NONE}
    if stray:
        yield f"operation {min(stray)}, of which there is none"
    yield from _places("layer", links.run_of, len(links.runs), least=_NONE)
    yield from _places("pass", links.pass_of, len(links.passes), least=_NONE)
    yield from _places("pass", (run.pass_ for run in links.runs), len(links.passes), least=_NONE)
    named = (
        *links.layer_confidence, *links.layer_unsure, *links.operation_confidence, *links.operation_unsure,
    )  # fmt: skip
    yield from _places("activity", named, count)
    if not all(0 <= one <= 1 for one in (*links.layer_confidence.values(), *links.operation_confidence.values())):
        yield "a confidence that is no probability"
    if any(by == "" for by, to in zip(links.layer_by, links.run_of, strict=False) if to != _NONE):
        yield "a layer without its evidence"
    if any(by == "" for by, to in zip(links.operation_by, links.operation_of, strict=False) if to != _NONE):
        yield "an operation without its evidence"


def _places(what: str, numbers: Iterable[int], count: int, least: int = 0) -> Iterator[str]:
    wrong = next((one for one in numbers if not least <= one < count), None)
    if wrong is not None:
        yield f"{what} {wrong} of {count}"
