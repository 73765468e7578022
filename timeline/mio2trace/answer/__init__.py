"""The report on a run: how its time was spent, its findings, and what to try.

`report_of` collects the content once (`content.py`). `text.py` writes it as an answer block, `markdown.py` as a comment
for an issue, `html.py` as a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

import msgspec

import mio2trace
from mio2trace.analysis import Analysis, Run
from mio2trace.answer.content import Report, Section
from mio2trace.answer.gather import Depth, of_logs, of_profile, printed_reference
from mio2trace.findings import Gpu, Subject
from mio2trace.measures import Measures
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.ops.choices import Choices
from mio2trace.outgoing import count, visible
from mio2trace.ranks import meetings, said, totals

__all__ = ["Report", "Section", "report_of", "subjects"]

LEAST_NAME = 3
"""The least letters that the files of a job have in common, to be its title."""
MOST_SECTIONS = 8
"""The most sections (runs or processes) of a report; it states how many others there are."""


def report_of(analysis: Analysis, runs: Sequence[Run], gpu: Gpu | None = None, *, depth: Depth = "page") -> Report:
    """Return the content of the report on some of the runs; ``depth``: how much of it is needed."""
    sections: list[Section] = []
    profiles = 0
    for run in runs:
        shown, of_run = _sections(run, len(runs) > 1, gpu, MOST_SECTIONS - len(sections), depth=depth)
        sections += shown
        profiles += of_run
    titles = dict.fromkeys(_title(run, analysis) for run in runs)
    return Report(
        title=", ".join(list(titles)[:3]) + (f" and {len(titles) - 3} more" if len(titles) > 3 else ""),
        generator=f"mio2trace {mio2trace.__version__}",
        sections=tuple(sections),
        left_out=profiles - len(sections),
        inputs=tuple(
            sorted(f"{file.format} ({file.size:,} bytes, sha256 {file.sha256[:12]})" for file in analysis.inputs)
        ),
        notes=tuple(analysis.cleaner.quoted(str(note)) for note in analysis.notes if note.problem),
    )


def _title(run: Run, analysis: Analysis) -> str:
    """Return the name of a run. That of a job is the common beginning of its files' names."""
    names = [file.name.rpartition("/")[2].partition(".")[0] for file in run.inputs]
    alike = takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    common = "".join(letters[0] for letters in alike).rstrip(" ._-")
    if not run.is_job or len(names) < 2 or len(common) < LEAST_NAME:
        return run.name
    return f"{visible(analysis.cleaner.text(common))}: {count(len(run.alignments), 'process')}"


def _sections(run: Run, several: bool, gpu: Gpu | None, most: int, *, depth: Depth) -> tuple[list[Section], int]:
    """Return at most ``most`` sections, one for each profile that holds commands, and the number of such profiles.
    Without such a profile the sections are those of the logs."""
    sections = []
    for _, libraries, subject in islice(subjects(run, gpu), most):
        profile = subject.alignment.profile
        label = profile.process.label or profile.framework.name
        name = ", ".join(filter(None, (run.name if several or not label else "", label)))
        sections.append(of_profile(subject, name, libraries, depth=depth))
    if sections and run.is_job:
        sections[0] = _with_ranks(sections[0], run)
    number = sum(1 for measures in run.drawn if measures.alignment.profile.activities)
    if not number:
        of_run = of_logs(run)
        sections, number = of_run[:most], len(of_run)
    if sections and run.reference is not None and not any(section.reference for section in sections):
        printed = printed_reference(run.logs, run.reference.logs)
        sections[0] = msgspec.structs.replace(sections[0], reference=printed)
    return sections, number


def _with_ranks(section: Section, run: Run) -> Section:
    """Add which ranks wait for which; a run without a collective of all ranks stays as it is."""
    of = totals(meetings(run.alignments), run.alignments)
    labels = [alignment.profile.process.label for alignment in run.alignments]
    if not of:
        return section
    return msgspec.structs.replace(section, waiting=said(of, labels), ranks=tuple(zip(labels, of, strict=True)))


def subjects(run: Run, gpu: Gpu | None = None) -> Iterator[tuple[int, Sequence[MiopenLog], Subject]]:
    """Yield the input of the rules for each profile of the run that holds commands: its place in `Run.drawn`, the
    MIOpen logs of its process, and its `Subject`."""
    measured = [at for at, measures in enumerate(run.drawn) if measures.alignment.profile.activities]
    for number, place in enumerate(measured):
        measures = run.drawn[place]
        libraries = _libraries(run, measures, number)
        messages = _messages(libraries)
        choices = Choices(run.side_files, libraries)
        yield place, libraries, Subject(measures, gpu, messages, _reference(run, place), choices)


def _reference(run: Run, place: int) -> Measures | None:
    """Return the measures of the same process in the run without MIOpen's log."""
    of = run.reference
    return of.measures[of.of.index(place)] if of is not None and place in of.of else None


def _libraries(run: Run, measures: Measures, place: int) -> Sequence[MiopenLog]:
    """Return the MIOpen logs of a profile's process."""
    if measures in run.measures and run.shares:
        return run.shares[run.measures.index(measures)].libraries
    return run.libraries if not place else ()


def _messages(libraries: Sequence[MiopenLog]) -> list[Message]:
    return [record for log in libraries for record in log.records if isinstance(record, Message)]
