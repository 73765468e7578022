"""``python -m tests.oracle FILE...``: what the second opinion says of each file."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.oracle import read
from tests.oracle.rules import PARTS, answer

for argument in sys.argv[1:]:
    told = answer(read(Path(argument)))
    print(argument, "copies", dict(told.copies))
    for place, device in told.devices.items():
        marked = "marked" if device.marked else "by repetition"
        print(f"  {place}: {len(device.steps)} steps {marked}, before {device.before}", end="")
        print(f", between {device.between}, unknown {device.unknown}")
        for step in device.steps[:12]:
            size = f"{step.length / 1e6:9.3f} ms" if step.length is not None else "  no end"
            shares = ", ".join(
                f"{part} {100 * step.parts[part] / step.length:.1f}"
                for part in PARTS
                if step.length and step.parts.get(part)
            )
            print(f"    {step.name[:30]:30} {size} kernels {step.kernels:5} {step.kernel_ns / 1e6:9.3f} ms  {shares}")
