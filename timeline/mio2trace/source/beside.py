"""Calls beside the caller's own work, on a thread: what does not hold the interpreter, as hashing does not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

LOOK_S = 0.5


class Beside:
    """Works calls off in order, on a thread that begins with the first of them.

    A thread that finds no memory left ends without a word, and who waits for it would wait for ever: here `wait` looks
    whether there still is one.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._progress = threading.Semaphore(0)
        self._given = self._done = 0
        self._error: BaseException | None = None

    def give(self, call: Callable[[], object]) -> None:
        """Put a call behind the others. Raises `RuntimeError` where no thread can be begun."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, daemon=True)
            thread.start()
            self._thread = thread
        self._given += 1
        self._calls.put(call)

    def wait(self, left: int = 0) -> None:
        """Until no more than so many calls are left. Raises what one of them raised; `MemoryError`: the thread died."""
        while self._given - self._done > left:
            if not self._progress.acquire(timeout=LOOK_S) and not self._is_alive() and self._given - self._done > left:
                self._given = self._done
                raise MemoryError
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def close(self) -> None:
        """Work off what was given; what it raised is lost."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
            self._thread = None

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:  # who waits gets it
                self._error = error
            del call
            self._done += 1
            self._progress.release()
