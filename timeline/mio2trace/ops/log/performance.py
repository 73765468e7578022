"""Records of MIOPEN_PERFORMANCE_LOGS: a JSON object per line and solution (miopen-side-files.md 5)."""

from __future__ import annotations

import re

import msgspec

from mio2trace.model.choices import SOLVER

_BAD_ESCAPE = re.compile(r"\\u(?:[0-9a-fA-F]{0,3}[^0-9a-fA-F]|ffffff[0-9a-fA-F]{2})")
_NEVER = (1 << 64) - 1


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """A line of MIOPEN_PERFORMANCE_LOGS: a solver, the time of its fastest configuration, the kernels of that one."""

    solver: str
    phase: str = ""
    time_ms: float | None = None
    workspace_bytes: int | None = None
    kernels: tuple[str, ...] = ()


class _Kernel(msgspec.Struct, gc=False):
    kernel_name: str = ""


class _Config(msgspec.Struct, gc=False):
    exec_number: int = 0
    time_ms: float = 0.0
    kernels: list[_Kernel] | None = None


class _Performance(msgspec.Struct, gc=False):
    solution: str
    performance_configs: list[_Config] | None = None
    phase: str = ""
    workspace_bytes: int | None = None


_PERFORMANCE = msgspec.json.Decoder(_Performance)


def performance(text: str) -> Performance | None:
    """A record of MIOPEN_PERFORMANCE_LOGS (miopen-side-files.md 5); None if it is none, or damaged.

    A configuration whose number of executions is the greatest of 64 bits was not timed.
    """
    try:
        told = _PERFORMANCE.decode(text)
    except msgspec.DecodeError:
        try:  # what is no ASCII may be written as an escape that JSON has not got
            told = _PERFORMANCE.decode(_BAD_ESCAPE.sub("?", text))
        except (msgspec.DecodeError, UnicodeEncodeError):
            return None
    except (UnicodeEncodeError, RecursionError):
        return None
    solver = told.solution.rpartition("/")[2]
    if told.performance_configs is None or SOLVER.fullmatch(solver) is None:
        return None
    timed = [one for one in told.performance_configs if one.exec_number < _NEVER and 0 < one.time_ms < 1e9]
    fastest = min(timed, key=lambda one: one.time_ms, default=None)
    size = told.workspace_bytes
    return Performance(
        solver=solver,
        phase=told.phase[:40],
        time_ms=None if fastest is None else fastest.time_ms,
        workspace_bytes=size if size is not None and 0 <= size < 1 << 62 else None,
        kernels=() if fastest is None else tuple(kernel.kernel_name for kernel in (fastest.kernels or ())[:64]),
    )
