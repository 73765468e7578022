"""What a recording holds, whichever tool wrote it. Times are whole nanoseconds."""

from __future__ import annotations

import functools
import gzip
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

COMMUNICATION = re.compile(
    r"(?!triton_).*(?:nccl|rccl|all_?reduce|allgather|cross_device_reduce|\bint(?:er|ra)node|EpDispatch|EpCombine"
    r"|userbuffers|nvshmem|moeA2A|signal_kernel|hybrid_ep::(?!permute)|ccl_comm|Reduce_scatter_)",
    re.IGNORECASE | re.DOTALL,
)
COPY_KERNEL = re.compile(r"__amd_rocclr_(copy|fill)")


@dataclass(frozen=True)
class Call:
    """A call of the GPU's programming interface, on the host."""

    process: int
    thread: int
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Mark:
    """A range of the host that somebody named."""

    process: int
    thread: int
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Command:
    """What a device did. ``kind``: kernel, copy, fill. ``call`` launched it; None: no such call is recorded."""

    process: int
    device: int
    stream: int
    kind: str
    name: str
    start: int
    end: int
    call: Call | None = None
    on_queue: bool = False
    """``stream`` is a queue of the hardware, which runs several streams at once."""
    launch: int | None = None
    """The number of its launch, whose call need not be recorded: later ones have larger numbers."""
    sized: bool = True
    """Whether the file states how many bytes a copy moves."""
    op_start: int | None = None
    """When the op began that the row itself names as the one that launched it."""

    @property
    def begun(self) -> int | None:
        """When the host was at it."""
        return self.op_start if self.call is None else self.call.start

    @property
    def family(self) -> str:
        """What its time counts as."""
        return "copies" if self.kind != "kernel" else family_of_kernel(self.name)


@functools.cache  # names of templates are long, and come again
def family_of_kernel(name: str) -> str:
    if COPY_KERNEL.match(name):
        return "copies"
    return "communication" if COMMUNICATION.match(name) else "compute"


@dataclass
class Recording:
    commands: list[Command] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    numbers: dict[int, set[int]] = field(default_factory=dict)
    """By process those that the profiler gave its ops and marks, one after another."""
    lost: int = 0
    """Ops that the rows of devices name, in a file that has no row of the host."""


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A database that may be packed, and is not written to."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "profile.db"
        copy.write_bytes(unpacked(path))
        base = sqlite3.connect(f"file:{copy}?immutable=1", uri=True)
        base.row_factory = sqlite3.Row
        try:
            yield base
        finally:
            base.close()
