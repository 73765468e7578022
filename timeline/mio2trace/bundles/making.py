"""The archive: inputs read once, each of its members made of what they hold, and a manifest of it all."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

import mio2trace
from mio2trace.analysis import Analysis, AnalysisOptions, analyse
from mio2trace.answer.machine import versions
from mio2trace.bundles.members import Member, of_input, texts
from mio2trace.conversion import convert
from mio2trace.notes import InputError, Notes
from mio2trace.privacy.pseudonyms import Pseudonyms, Scrubber
from mio2trace.recording.machine import variables
from mio2trace.recording.packing import pack
from mio2trace.source import Source
from mio2trace.source.archive import MANIFEST, is_archive, unpacked

TRACE = "trace.pftrace.gz"
TOLD = ("profiler", "exit", "seconds", "rank", "variables", "set_by_record", "machine", "boot", "clocks")
"""Of the manifest of a recorded run."""


class Made(NamedTuple):
    """What was put into an archive: members, notes of the reading, why there is no trace (or empty), the machine and
    versions that the files state."""

    members: tuple[str, ...]
    notes: Notes
    no_trace: str
    machine: Mapping[str, Sequence[str]]


def make(files: Sequence[str], output: str, options: AnalysisOptions, *, raw: bool = False) -> Made:
    """Write the bundle of ``files`` to ``output``. ``raw``: with the files as they are, too, which may hold anything.

    Raises `InputError` where a file cannot be used or the archive not be written.
    """
    notes = Notes()
    with tempfile.TemporaryDirectory(prefix="mio2trace-") as folder:
        laid = _Laid(files, folder, options.max_input)
        analysis = analyse(laid.files, options, notes)
        scrubber = _scrubber(analysis)
        members = _members(analysis, scrubber, folder, notes)
        no_trace = _draw(laid.files, os.path.join(folder, TRACE))
        if not no_trace:
            members.append(Member(TRACE, os.path.join(folder, TRACE)))
        for name, text in texts(analysis).items():
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8", errors="replace") as out:
                out.write(text)
            members.append(Member(name, path))
        if raw:
            members += [Member(f"raw/{name}", path) for name, path in laid.originals.items()]
        manifest = _manifest(analysis, scrubber, members, laid.told, no_trace)
        pack(output, {**manifest, "raw": raw}, {member.name: member.path for member in members})
    return Made(tuple(member.name for member in members), notes, no_trace, manifest["machine"])


class _Laid:
    """The files, with what an archive of a recorded run tells besides its inputs."""

    def __init__(self, files: Sequence[str], folder: str, max_input: int | None) -> None:
        self.files: list[str] = []
        self.told: dict[str, Any] = {}
        self.originals: dict[str, str] = {}
        for number, file in enumerate(files):
            if file == "-":
                file = os.path.join(folder, "standard input")
                with open(file, "wb") as out:
                    shutil.copyfileobj(sys.stdin.buffer, out)
            if os.path.isfile(file):
                self.originals[f"{number}-{os.path.basename(file)}"] = file
            if os.path.isdir(file) or not is_archive(file):
                self._refuse_archives_in(file)
                self.files.append(file)
                continue
            place = os.path.join(folder, f"archive-{number}")
            with unpacked(file, max_input) as made:
                os.rename(made.folder, place)
            self.files.append(place)
            if made.manifest is None:
                continue
            with open(os.path.join(place, MANIFEST), "wb") as out:
                out.write(orjson.dumps(made.manifest.told))
            self.told = self.told or {name: made.manifest.told[name] for name in TOLD if name in made.manifest.told}

    def _refuse_archives_in(self, path: str) -> None:
        inside = [os.path.join(path, name) for name in sorted(os.listdir(path))] if os.path.isdir(path) else []
        found = next(filter(is_archive, inside), None)
        if found is not None:
            name = os.path.basename(found)
            raise InputError(f"{os.path.basename(path)}: holds the archive {name}; expected the archive's own path")


def _members(analysis: Analysis, scrubber: Scrubber, folder: str, notes: Notes) -> list[Member]:
    """The members that are made of inputs, those of several runs in folders of their own.

    Raises `InputError` where none holds a record: no command would take the archive.
    """
    if not any(file.records for file in analysis.inputs):
        raise InputError(f"{analysis.names}: no record in it; expected kernels, calls or lines of a log")
    members: list[Member] = []
    taken: list[str] = []
    inputs = [(number, file) for number, run in enumerate(analysis.runs, 1) for file in run.inputs]
    for number, file in inputs:
        if not file.records:
            notes.add("file without any record left out of the bundle", file.name)
            continue
        within = f"run{number}/" if len(analysis.runs) > 1 else ""
        members += of_input(file, scrubber, folder, taken, within)
    if len(analysis.runs) == 1:  # which of several runs it is of, a bundle could not say
        for file in analysis.references:
            members += of_input(file, scrubber, folder, taken, "reference-")
    return members


def _scrubber(analysis: Analysis) -> Scrubber:
    scrubber = Scrubber(Pseudonyms())
    for file in (*analysis.inputs, *analysis.references):
        source = Source(file.path, 0, Notes())
        scrubber.learn(source.head)
        source.close()
    return scrubber


def _draw(files: Sequence[str], path: str) -> str:
    """Write the trace, processes each from its start where nothing relates them; why there is none, or nothing."""
    said = ""
    for several, from_start in ((False, False), (True, False), (True, True)):
        try:
            convert(*files, output=path, several=several, from_start=from_start)
            return ""
        except InputError as error:
            said = said or str(error)
    return said


def _manifest(
    analysis: Analysis, scrubber: Scrubber, members: Sequence[Member], told: Mapping[str, Any], no_trace: str
) -> dict[str, Any]:
    """What the bundle holds, and what a recorded run told of itself, cleaned like all else."""
    recorded = _clean(dict(told), scrubber)
    if isinstance(told.get("variables"), dict):
        recorded["variables"] = variables({str(name): str(value) for name, value in told["variables"].items()})
    machine = versions_of(analysis)
    return {
        "made_by": f"mio2trace {mio2trace.__version__} bundle",
        "inputs": [member.name for member in members if member.of is not None and not member.of.is_reference],
        "reference": [member.name for member in members if member.of is not None and member.of.is_reference],
        "files": [
            {"member": one.name, "format": one.of.format, "size": one.of.size, "sha256": one.of.sha256}
            for one in members
            if one.of is not None
        ],
        "machine": {name: [scrubber.text(value) for value in values] for name, values in machine.items()},
        "recorded": recorded,
        "notes": {scrubber.text(note.kind): note.count for note in analysis.notes},
        **({"no_trace": scrubber.text(no_trace)} if no_trace else {}),
    }


def versions_of(analysis: Analysis) -> dict[str, list[str]]:
    """What a maintainer asks first: GPUs, architectures, versions; an empty list if no file states it."""
    profiles = [one for run in analysis.runs for one in run.profiles]
    libraries = [log for run in analysis.runs for log in run.libraries]
    named = [log.device_name for run in analysis.runs for log in run.logs if log.device_name]
    return versions(profiles, libraries, named)


def _clean(value: Any, scrubber: Scrubber) -> Any:
    """Whatever a manifest holds: it may be somebody else's."""
    if isinstance(value, str):
        return scrubber.text(value)
    if isinstance(value, dict):
        return {scrubber.text(str(name)): _clean(one, scrubber) for name, one in value.items()}
    return [_clean(one, scrubber) for one in value] if isinstance(value, list) else value
