"""A whole recording: run the program, run it again for reference, inspect the result, and pack it, also after
Ctrl-C."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import mio2trace
from mio2trace.notes import InputError
from mio2trace.one_thread import given_environment
from mio2trace.recording import contents
from mio2trace.recording.machine import anchor, boot, machine, variables
from mio2trace.recording.packing import name_for, pack
from mio2trace.recording.plan import NONE, Asked, Plan, Profiler, plan, rank_of
from mio2trace.recording.running import Outcome, run

LOG = "run.log"
REFERENCE = "reference-"
Say = Callable[[str], None]


class Recorded(NamedTuple):
    """A recorded run in a temporary folder."""

    plan: Plan
    outcome: Outcome
    log: str
    clocks: list[dict[str, int]]
    contents: contents.Contents = contents.Contents(contents.Log(), ())


def record(asked: Asked, profiler: Profiler, output: str, *, reference: bool, say: Say) -> int:
    """Run the program and write the archive ``output``; return the program's exit code.

    If the archive cannot be written, the recording stays in the temporary folder, and a line names this folder. Raises
    `InputError` then, and if the program cannot be run.
    """
    environment = given_environment()
    _require_writable(output)
    try:
        folder = tempfile.mkdtemp(prefix="mio2trace-record-")
    except OSError as error:
        raise InputError(f"no place for temporary files: {error.strerror or error}; TMPDIR names another") from None
    keep = False
    try:
        ran = [_run(asked, profiler, os.path.join(folder, "run"), environment, say)]
        keep = True
        if reference and ran[0].outcome.signal is None:
            say("running once more without MIOpen's log, for reference")
            # dv/dt waits for each command, so its times are no reference
            under = profiler if profiler.of_rocm else NONE
            plain = asked._replace(logging=False, library="")
            ran.append(_run(plain, under, os.path.join(folder, "reference"), environment, say))
        runs = [one._replace(contents=contents.look(one.log, one.plan.folder)) for one in ran]
        pack(output, *_packed(runs, environment))
        keep = False
    except InputError as error:
        if not keep:
            raise
        raise InputError(f"{error}; what was recorded is in {folder}") from None
    except BaseException:
        if keep:
            say(f"what was recorded is in {folder}")
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    for line in told(runs, output):
        say(line)
    return runs[0].outcome.code


def _require_writable(output: str) -> None:
    """Check before a run of an hour, not after it. Raises `InputError`."""
    folder = os.path.dirname(os.path.abspath(output))
    try:
        os.makedirs(folder, exist_ok=True)
        if os.path.isdir(output):
            raise InputError(f"{output}: is a folder; expected a name for the archive")
        with tempfile.NamedTemporaryFile(prefix=".mio2trace-", dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{output}: cannot write there: {error.strerror or error}") from None


def _run(asked: Asked, profiler: Profiler, folder: str, environment: Mapping[str, str], say: Say) -> Recorded:
    profile = os.path.join(folder, "profile")
    os.makedirs(profile)
    made = plan(asked, profiler, profile, environment)
    log = os.path.join(folder, LOG)
    clocks = [anchor()]
    outcome = run(made.command, made.environment, log, say, through_script=profiler.name == "rocprof")
    clocks.append(anchor())
    return Recorded(made, outcome, log, clocks)


def _packed(runs: list[Recorded], environment: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    done = runs[0]
    members: dict[str, str] = {}
    inputs: list[list[str]] = []
    beside: list[str] = []
    for number, one in enumerate(runs):
        prefix = REFERENCE if number else ""
        members[prefix + LOG] = one.log
        own = [prefix + LOG] if one.contents.log.known else []
        for part in one.contents.parts:
            name = name_for(prefix + os.path.basename(part.path), members)
            members[name] = part.path
            (beside if part.beside else own).append(name)
        inputs.append(own)
    started = done.plan
    manifest: dict[str, Any] = {
        "made_by": f"mio2trace {mio2trace.__version__} record",
        "inputs": inputs[0],
        "beside": beside,
        "reference": inputs[1] if len(inputs) > 1 else [],
        "profiler": {
            name: value for name in ("name", "version", "rocm") if (value := getattr(started.profiler, name))
        },
        "exit": {"code": done.outcome.code, "signal": done.outcome.signal},
        "seconds": round(done.outcome.seconds, 3),
        "reference_seconds": round(runs[1].outcome.seconds, 3) if len(runs) > 1 else None,
        "rank": rank_of(environment),
        "variables": variables(started.environment),
        "set_by_record": sorted(name for name in started.added if name != "LD_PRELOAD"),
        "machine": machine(environment),
        "boot": boot(),
        "clocks": {"start": done.clocks[0], "end": done.clocks[1]},
        "problems": list(contents.problems(done.contents, done.outcome, started.profiler, started.kept)),
    }  # fmt: skip
    return manifest, members


def begun(made: Plan, detail: bool) -> Iterator[str]:
    """Yield the lines to print before the program runs."""
    log = "MIOpen log with entries and commands" + (", level 6" if detail else "")
    yield f"{made.profiler}; {log}{', ROCTx ranges on' if made.profiler.of_rocm else ''}"
    for name, value in made.kept.items():
        yield f"{name}={value} is yours and stays"
    for name in made.removed:
        yield f"{name} is left out: with it the profiler gets no kernels"


def told(runs: list[Recorded], output: str) -> Iterator[str]:
    """Yield the lines to print after the program ran."""
    done = runs[0]
    yield contents.summary(done.contents, done.outcome)
    if len(runs) > 1:
        yield f"reference: {contents.summary(runs[1].contents, runs[1].outcome)}"
    for line in contents.problems(done.contents, done.outcome, done.plan.profiler, done.plan.kept):
        yield f"problem: {line}"
    command = next_command(done.contents, output)
    yield f"next: {command}" if command else f"nothing to read in {output}: neither kernels nor a line that is known"


def next_command(came: contents.Contents, output: str) -> str:
    """Return the command that a person would run next; empty if there is nothing to read."""
    name = shlex.quote(output)
    if came.kernels:
        stem = shlex.quote(os.path.splitext(output)[0] + ".html")
        return f"mio2trace report {name} -o {stem}"
    if came.log.calls:
        return f"mio2trace ops {name}"
    return f"mio2trace report {name}" if came.log.known else ""


def next_command_of_folder(folder: str) -> str:
    """Return the same as `next_command` for the files that the lines of a shell leave in a folder."""
    return f"mio2trace report {shlex.quote(folder)} -o {shlex.quote(folder)}.html"
