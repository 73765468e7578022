"""Run the program as a child: pass its output through and into a file, pass signals to it, and return its exit code.

Output, pipes and signals behave as without this program, except for buffering: the program writes into a pipe. The
terminal sends its signals to the program itself; signals that are sent to us are passed on. Processes that the program
started may outlive it. As with `tee`, we wait for them while they hold the output, until a signal comes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from mio2trace.notes import InputError

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
    """``code``: for `sys.exit`; 128 + the number of a signal. ``lost``: why the log is incomplete, or empty."""

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
                for pid in self._receivers():
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, told.si_signo)

    def _receivers(self) -> list[int]:
        """Return the receivers of a signal: the program; if this is the script of a profiler, which keeps signals to
        itself, also its children."""
        return [self._child.pid, *(_descendants(self._child.pid) if self.through_script else ())]


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
