"""How long a steady step lasts and how the device spends it: the numbers of every answer, computed once.

Trace metadata, tables, report, JSON, dataset and comparison read `StepTime`. It is of one device: the one whose steps
are longest, because it bounds the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mio2trace.measures.device_time import Window

PARTS = ("compute", "communication", "copy", "unrecorded", "idle")
"""What a step consists of: computation, exposed communication, exposed copies and fills, work that was not recorded,
idle time."""
_SHOWN = {"communication": "exposed communication", "copy": "exposed copies", "unrecorded": "not recorded"}


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of the steady steps of the slowest device, in ns; `PARTS` add up to ``step_ns``.

    ``device``: its number. ``steps_ns``: the length of each of these steps. ``windows``: these steps themselves.
    """

    device: int
    step_ns: int
    compute_ns: int
    communication_ns: int
    copy_ns: int
    unrecorded_ns: int
    idle_ns: int
    steps_ns: tuple[int, ...]
    windows: tuple[Window, ...]

    @property
    def parts(self) -> dict[str, int]:
        """By name in `PARTS`, in ns."""
        return {name: getattr(self, f"{name}_ns") for name in PARTS}

    def percent(self, part: str) -> float:
        """A part in percent of the step."""
        return 100 * self.parts[part] / self.step_ns if self.step_ns else 0.0

    def samples(self) -> dict[str, tuple[int, ...]]:
        """The step and each of its parts, by the name that people read, for each steady step in order."""
        busy = [window.busy for window in self.windows if window.busy is not None]
        return {"step": tuple(one.length_ns for one in busy)} | {
            _SHOWN.get(name, name): tuple(getattr(one, f"{name}_ns") for one in busy) for name in PARTS
        }

    def record(self) -> dict[str, Any]:
        """As the trace's metadata and the JSON report show it."""
        return {
            "device": self.device,
            "steps": len(self.steps_ns),
            "step_ns": self.step_ns,
            "step_min_ns": min(self.steps_ns),
            "step_max_ns": max(self.steps_ns),
            **{f"{name}_ns": ns for name, ns in self.parts.items()},
            **{f"{name}_percent_of_step": round(self.percent(name), 3) for name in PARTS},
        }


def step_time(device: int, windows: Sequence[Window]) -> StepTime | None:
    """The mean of ``windows``, steady steps of one device whose ends are known; None for no windows."""
    busy = [window.busy for window in windows if window.busy is not None]
    if not any(one.length_ns for one in busy):
        return None
    parts = {f"{name}_ns": round(sum(getattr(one, f"{name}_ns") for one in busy) / len(busy)) for name in PARTS}
    return StepTime(
        device=device,
        step_ns=sum(parts.values()),
        **parts,
        steps_ns=tuple(one.length_ns for one in busy),
        windows=tuple(windows),
    )
