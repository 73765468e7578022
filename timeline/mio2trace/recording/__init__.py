"""Run a program under a profiler, with MIOpen's log on, and write one archive: the work of `mio2trace record`.

`plan` decides what to run and prints it. `run` runs the program as a child: it passes its output through and into a
file, passes signals to it, and returns its exit code. `session` inspects the result, describes the machine, and makes
the archive. Nothing here ran on a ROCm GPU: the command lines follow the sources of the tools."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from mio2trace.notes import InputError, OptionError

PLACES = ("/opt/rocm/bin",)
"""Folders of ROCm that are searched in addition to the PATH."""
ASKED_S = 20
_LONGEST_ANSWER = 1 << 20
_VERSION = re.compile(r"^[ \t]*+version:[ \t]*+v?(\d+(?>(?:\.\d+)+))", re.MULTILINE)
_ROCM = re.compile(r"^[ \t]*+rocm_version:[ \t]*+(\d+(?>(?:\.\d+)+))", re.MULTILINE)
_WORDS = re.compile(r"[\w-]++")
_ALWAYS_MS = 7 * 24 * 3_600_000
"""Seconds for ``--after`` without ``--for``: longer than any run."""
_WORLDS = (
    "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "FLUX_JOB_SIZE", "SLURM_NTASKS",
)  # fmt: skip


class Period(NamedTuple):
    """Record ``length_s`` seconds (None: to the end), ``after_s`` seconds after the start."""

    after_s: float = 0
    length_s: float | None = None

    def __bool__(self) -> bool:
        return bool(self.after_s) or self.length_s is not None


class Profiler(NamedTuple):
    """A profiler. ``name``: rocprofv3, rocprof, dv/dt or none. ``path``: of the program or the library. ``help``: its
    own help, which shows its options. ``version``, ``rocm``: empty if unknown."""

    name: str
    path: str = ""
    version: str = ""
    rocm: str = ""
    help: str = ""

    def __str__(self) -> str:
        if self.name == "none":
            return "no profiler"
        text = f"{self.name} {self.version}".rstrip()
        return f"{text} (ROCm {self.rocm})" if self.rocm else text

    @property
    def of_rocm(self) -> bool:
        """Whether it records ROCTx ranges."""
        return self.name in ("rocprofv3", "rocprof")


NONE = Profiler("none")


def find(name: str, environment: Mapping[str, str]) -> Profiler | None:
    """Return the profiler of that name on the PATH or in ROCm's folders, after asking it for version and help."""
    root = environment.get("ROCM_PATH")
    places = [environment.get("PATH", os.defpath), *([os.path.join(root, "bin")] if root else []), *PLACES]
    path = shutil.which(name, path=os.pathsep.join(places))
    if path is None:
        return None
    if name != "rocprofv3":
        return Profiler(name, path)
    told, help = (_answer([path, option], environment) for option in ("--version", "--help"))
    version, rocm = (found[1] if (found := pattern.search(told)) else "" for pattern in (_VERSION, _ROCM))
    return Profiler(name, path, version, rocm, help)


def _answer(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return what a program prints, up to a limit; empty if it fails."""
    try:
        asked = subprocess.Popen(  # noqa: S603 - the profiler that is about to run the program
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError):
        return ""

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(asked.pid, signal.SIGKILL)  # a script and its child processes

    too_late = threading.Timer(ASKED_S, end)
    too_late.start()
    try:
        with asked:
            assert asked.stdout is not None
            told = asked.stdout.read(_LONGEST_ANSWER)
            end()  # it may never end, and its first output is enough
    finally:
        too_late.cancel()
    return told.decode(errors="replace")


def command_line(
    profiler: Profiler, program: Sequence[str], folder: str, period: Period, environment: Mapping[str, str]
) -> list[str]:
    """Return the command line of ``program`` under ``profiler``, whose files go into ``folder``."""
    if profiler.name == "rocprofv3":
        return [profiler.path, *_rocprofv3(profiler, folder, period, environment), "--", *program]
    if profiler.name == "rocprof":
        return [
            profiler.path, "--hip-trace", "--roctx-trace", "-o", os.path.join(folder, "results.csv"), *program,
        ]  # fmt: skip
    return [*program]


def _rocprofv3(profiler: Profiler, folder: str, period: Period, environment: Mapping[str, str]) -> list[str]:
    """Use neither ``--hsa-trace`` nor ``--sys-trace``, which cost tens of per cent. Options that its help lacks are
    left out."""
    options = ["--kernel-trace", "--memory-copy-trace", "--marker-trace"]
    options.append("--hip-runtime-trace" if _takes(profiler, "--hip-runtime-trace") else "--hip-trace")
    has_ranks = any(environment.get(name, "1") not in ("", "0", "1") for name in _WORLDS)
    if has_ranks and _takes(profiler, "--rccl-trace"):
        options.append("--rccl-trace")
    # since ROCm 7.0 rocpd is a form and the default; older versions write CSV
    options += ["--output-format", "rocpd" if _takes(profiler, "rocpd") else "csv", "-d", folder]
    if period:
        length = _ALWAYS_MS if period.length_s is None else round(period.length_s * 1000)
        options += ["--collection-period", f"{round(period.after_s * 1000)}:{length}:1"]
        options += ["--collection-period-unit", "msec"]
    return options


def _takes(profiler: Profiler, word: str) -> bool:
    """A profiler without a version counts as the newest."""
    return not profiler.help or word in _WORDS.findall(profiler.help)


# -- The plan ----------------------------------------------------------------------------------------------------------

LEAKED = "ROCPROFILER_REGISTER_LIBRARY"
"""A profiler that was loaded earlier leaves this variable behind; it keeps the next profiler from getting any
kernel."""
RANKS = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "FLUX_TASK_RANK", "SLURM_PROCID",
)  # fmt: skip
_PLACEHOLDER = re.compile(r"\{(rank|pid|env:([A-Za-z_][A-Za-z0-9_]*)|[^{}/]*)\}")
_PARTS = re.compile(r"[\s:]")
LOGGING = {
    "MIOPEN_ENABLE_LOGGING": "1",
    "MIOPEN_ENABLE_LOGGING_CMD": "1",
    "MIOPEN_ENABLE_LOGGING_MPMT": "1",
    "MIOPEN_LOG_BUFFER_SIZE": "0",
}
"""Entries, commands, the thread of each line. No buffer: it was the default once, because it saves 13 % throughput."""
RANGES = {"MIOPEN_ENABLE_LOGGING_ROCTX": "1"}
DETAIL = {"MIOPEN_LOG_LEVEL": "6"}


class Asked(NamedTuple):
    """The requested recording. ``profiler``: ``auto`` or a name. ``library``: dv/dt's. ``logging``: of MIOpen."""

    program: tuple[str, ...]
    profiler: str = "auto"
    library: str = ""
    detail: bool = False
    period: Period = Period()
    logging: bool = True


class Plan(NamedTuple):
    """How the program will be run. ``environment``: of the program. ``added``, ``removed``: its differences to the
    present environment. ``kept``: variables of the person that stay unchanged. ``command``: the whole command line."""

    profiler: Profiler
    command: list[str]
    environment: dict[str, str]
    added: dict[str, str]
    removed: tuple[str, ...]
    kept: dict[str, str]
    folder: str

    def script(self, log: str) -> list[str]:
        """Return lines of a POSIX shell that do the same, with the program's output in the file ``log``."""
        return [
            f"mkdir -p {shlex.quote(self.folder)}",
            *(f"unset {name}" for name in self.removed),
            *(f"export {name}={shlex.quote(value)}" for name, value in self.added.items()),
            f"{shlex.join(self.command)} > {shlex.quote(log)} 2>&1",
        ]


def profiler_for(asked: Asked, environment: Mapping[str, str]) -> Profiler:
    """Return rocprofv3, else rocprof, else none; dv/dt if its library is given. Raises `InputError` if a requested
    profiler is missing, `OptionError` if it cannot do what the options ask."""
    if asked.library:
        path = os.path.abspath(asked.library)
        if not os.path.isfile(path):
            raise InputError(f"{asked.library}: no such library; expected dv/dt's libprof.so")
        if _PARTS.search(path):
            raise InputError(
                f"{asked.library}: a blank or colon in its path, which LD_PRELOAD does not allow; expected a path"
                " without them"
            )
        chosen = Profiler("dv/dt", path)
    elif asked.profiler == "none":
        chosen = NONE
    else:
        names = ("rocprofv3", "rocprof") if asked.profiler == "auto" else (asked.profiler,)
        found = next((one for name in names if (one := find(name, environment)) is not None), None)
        if found is None and asked.profiler != "auto":
            raise InputError(f"no {asked.profiler} on the PATH, nor in /opt/rocm/bin")
        chosen = found or NONE
    if asked.period and chosen.name != "rocprofv3":
        raise OptionError(f"--for and --after need rocprofv3; the profiler here is {chosen}")
    return chosen


def plan(asked: Asked, profiler: Profiler, folder: str, environment: Mapping[str, str]) -> Plan:
    """Return the plan to run ``asked.program``, with the profiler's files in ``folder``."""
    wanted: dict[str, str] = {}
    if asked.logging:
        wanted = LOGGING | (RANGES if profiler.of_rocm else {}) | (DETAIL if asked.detail else {})
    added = {name: value for name, value in wanted.items() if name not in environment}
    kept = {name: environment[name] for name, value in wanted.items() if environment.get(name, value) != value}
    if profiler.name == "dv/dt":
        added["LD_PRELOAD"] = ":".join(filter(None, (profiler.path, environment.get("LD_PRELOAD", ""))))
    removed = (LEAKED,) if LEAKED in environment else ()
    command = command_line(profiler, asked.program, folder, asked.period, environment)
    changed = {name: value for name, value in environment.items() if name not in removed} | added
    return Plan(profiler, command, changed, added, removed, kept, folder)


def rank_of(environment: Mapping[str, str]) -> int | None:
    """Return the rank of the process in its job, from the variables of its launcher."""
    values = (environment.get(name, "") for name in RANKS)
    return next((int(text) for text in values if text.isascii() and text.isdigit() and len(text) < 8), None)


def filled_in(path: str, environment: Mapping[str, str]) -> str:
    """Return ``path`` with ``{rank}``, ``{pid}`` and ``{env:NAME}`` replaced. The result never looks like an option.

    Raises `OptionError` if one of them has no value, and for another word in braces.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] == "pid":
            return str(os.getpid())
        if match[1] == "rank":
            rank = rank_of(environment)
            if rank is None:
                raise OptionError(f"{path}: no rank in the environment; expected one of {', '.join(RANKS)}")
            return str(rank)
        if match[2] is None:
            raise OptionError(f"{path}: {match[0]} is unknown; expected {{rank}}, {{pid}} or {{env:NAME}}")
        text = environment.get(match[2], "")
        if not text:
            raise OptionError(f"{path}: no {match[2]} in the environment")
        # A value is one part of a name: it leads neither into another folder nor to the one above.
        return text.replace("/", "_") if text.strip(".") else "_" * len(text)

    filled = _PLACEHOLDER.sub(value, path)
    return f"./{filled}" if filled.startswith("-") else filled


PIECE = 64 << 10
_LONGEST_LINE = 1 << 20
"""Bytes after which an unfinished line is written, so that it cannot fill the memory."""
_FROM_TERMINAL = 0x80
"""``SI_KERNEL``: the signal went to the whole foreground group."""
_TOLD_AFTER_S = 3
NOT_FOUND, NOT_STARTED = 127, 126
"""Exit codes of a shell for a missing program, and for a program that cannot be run."""
_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
_PASSED_ON = (*_ENDING, *(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)))


class NotStarted(InputError):
    """The program exists but cannot be run."""


class Outcome(NamedTuple):
    """How the program ended. ``code``: for `sys.exit`; 128 + the number of a signal. ``lost``: why the log is
    incomplete, or empty."""

    code: int
    signal: int | None
    seconds: float
    lost: str = ""

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit {self.code}"
        try:
            return f"killed by {signal.Signals(self.signal).name}"
        except ValueError:
            return f"killed by signal {self.signal}"


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: str,
    say: Callable[[str], None],
    *,
    through_script: bool = False,
) -> Outcome:
    """Run ``command`` to its end, and copy its output into the file ``log``. ``say``: prints a line for a person.

    ``through_script``: the command is a script that runs the program, and signals are for both.

    Raises `NotStarted`.
    """
    if not hasattr(signal, "sigtimedwait"):
        raise InputError("record needs Linux")
    passed_on = {number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN}
    passed_on.add(signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
    try:
        with open(log, "wb", buffering=0) as file:
            running = _Run(command, environment, file, passed_on, before, say)
            running.through_script = through_script
            return running.to_its_end()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Log:
    """The log file, written in whole lines so that the two streams do not mix within a line; given up if a
    write fails."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rest: dict[int, bytes] = {}
        self.lost = ""

    def take(self, stream: int, piece: bytes) -> None:
        text = self._rest.get(stream, b"") + piece
        cut = text.rfind(b"\n") + 1
        if len(text) - cut > _LONGEST_LINE:
            cut = len(text)
        self._rest[stream] = text[cut:]
        self._write(text[:cut])

    def finish(self) -> None:
        for rest in self._rest.values():
            self._write(rest)
        self._rest.clear()

    def _write(self, text: bytes) -> None:
        view = memoryview(text)
        while view and not self.lost:
            try:
                view = view[self._file.write(view) :]
            except OSError as error:
                self.lost = error.strerror or str(error)


class _Run:
    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        file: BinaryIO,
        signals: set[signal.Signals],
        mask: set[signal.Signals | int],
        say: Callable[[str], None],
    ) -> None:
        self.through_script = False
        self._log = _Log(file)
        self._signals = signals
        self._say = say
        self._start = time.monotonic()
        self._ended = threading.Event()
        self._waited_enough = threading.Event()
        try:
            self._child = subprocess.Popen(  # noqa: S603 - what the person asks to run
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # no thread exists yet; signals that are blocked here must not be blocked in the program
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
            )
        except OSError as error:
            raise NotStarted(f"{command[0]}: cannot be run: {error.strerror or error}") from None

    def to_its_end(self) -> Outcome:
        passing = threading.Thread(target=self._pass_signals_on, daemon=True)
        passing.start()
        try:
            self._copy()
            code = self._child.wait()
            seconds = time.monotonic() - self._start
        finally:
            self._ended.set()
            self._waited_enough.set()
            passing.join()
            self._log.finish()
        if code < 0:
            return Outcome(128 - code, -code, seconds, self._log.lost)
        return Outcome(code, None, seconds, self._log.lost)

    def _copy(self) -> None:
        """Copy until both streams end, or until the program has ended and a signal stops the wait for its child
        processes."""
        streams = {1: self._child.stdout, 2: self._child.stderr}
        told = False
        ended_at = 0.0
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as closing:
            for number, stream in streams.items():
                assert stream is not None
                selector.register(closing.enter_context(stream), selectors.EVENT_READ, number)
            while selector.get_map() and not self._waited_enough.is_set():
                for key, _ in selector.select(0.2 if ended_at else 1):
                    piece = os.read(key.fd, PIECE)
                    self._log.take(key.data, piece)
                    if not piece or not _write(key.data, piece):
                        selector.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr] # nobody reads on: the program gets SIGPIPE
                if not ended_at and self._child.poll() is not None:
                    ended_at = time.monotonic()
                    self._ended.set()
                elif ended_at and not told and time.monotonic() - ended_at > _TOLD_AFTER_S:
                    told = True
                    self._say(
                        "the program has ended, what it started goes on and holds its output; Ctrl-C stops waiting"
                    )

    def _pass_signals_on(self) -> None:
        while not (self._ended.is_set() and self._waited_enough.is_set()):
            told = signal.sigtimedwait(self._signals, 0.02 if self._ended.is_set() else 0.2)
            # The end of both streams also shows that the program has ended.
            if told is None or told.si_signo == signal.SIGCHLD:
                continue
            if self._ended.is_set():
                if told.si_signo in _ENDING:
                    self._waited_enough.set()
            elif told.si_code != _FROM_TERMINAL:
                # The script of a profiler keeps signals to itself.
                children = _descendants(self._child.pid) if self.through_script else ()
                for pid in (self._child.pid, *children):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, told.si_signo)


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except (OSError, ValueError):
        return []
    return [one for child in children for one in (child, *_descendants(child))]


def _write(stream: int, piece: bytes) -> bool:
    """Write all of a piece to our standard output (1) or error (2); return whether anybody still reads it."""
    view = memoryview(piece)
    while view:
        try:
            view = view[os.write(stream, view) :]
        except BlockingIOError:
            select.select([], [stream], [])
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO, errno.EBADF):
                print(f"mio2trace: output: {error.strerror}", file=sys.stderr)  # noqa: T201
            return False
    return True
