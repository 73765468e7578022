"""One run in every form that ROCm's tools write: all tell the same of each kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mio2trace.model.profile import Profile
from mio2trace.readers.base import Reader
from mio2trace.readers.rocm import rocpd, rpd, v1, v3_csv, v3_json
from tests.rocm_files import activities, read, samples, truth

TWINS = (
    "alexnet-10it-graph", "alexnet-level6-none", "lenet-cmdonly-kernel-trace", "lenet-train-own-layers",
    "resnet-immediate-2ranks", "resnet-train-miopen-2threads",
)  # fmt: skip
SAME_IDS: dict[str, Reader] = {
    "rocpd/[0-9]*.db.gz": rocpd,
    "rocprofv3-csv/*_kernel_trace.csv": v3_csv,
    "rocprofv3-json/*.json.gz": v3_json,
}
OTHER_IDS: dict[str, Reader] = {
    "rocprof-v1/**/results.json.gz": v1.JSON,
    "rocprof-v1/**/results.db.gz": v1.DATABASE,
    "rpd/*.rpd.gz": rpd.DATABASE,
}


def profiles(twin: str, pattern: str, reader: Reader) -> list[Profile]:
    folder: Path = samples() / "rocm-twins" / twin
    return [profile for path in sorted(folder.glob(pattern)) for profile in read(path, reader)]


@pytest.mark.shared
@pytest.mark.parametrize("twin", TWINS)
def test_rocprofv3_tells_the_same_in_every_form(twin: str) -> None:
    """Start, end, ids, launch, thread, sizes, name: of database, tables and JSON; times and ids as in the truth."""

    def told(pattern: str, reader: Reader) -> list[Any]:
        return sorted(
            (
                a.start_ns, a.end_ns, a.correlation, a.number, a.name, a.grid, a.workgroup,
                profile.threads[a.thread].tid,
                a.call and (a.call.name, a.call.start_ns or 0), a.resources and a.resources.vgprs,
            )
            for profile in profiles(twin, pattern, reader)
            for a in activities([profile])
        )  # fmt: skip

    forms = [told(pattern, reader) for pattern, reader in SAME_IDS.items()]
    assert forms[0] == forms[1] == forms[2]
    expected = sorted((row["start"], row["end"], row["correlation_id"], row["dispatch_id"]) for row in truth(twin))
    assert [row[:4] for row in forms[0]] == expected


@pytest.mark.shared
@pytest.mark.parametrize("twin", TWINS)
def test_older_tools_tell_the_same_launches(twin: str) -> None:
    """What is a kernel there has the times and the call that the database of rocprofv3 has."""

    def launches(pattern: str, reader: Reader) -> dict[Any, Any]:
        return {
            (a.start_ns, a.end_ns): a.call and (a.call.name, a.call.start_ns, a.call.end_ns)
            for a in activities(profiles(twin, pattern, reader))
        }

    expected = launches("rocpd/[0-9]*.db.gz", rocpd)
    for pattern, reader in OTHER_IDS.items():
        found = launches(pattern, reader)
        assert found.items() <= expected.items(), pattern
        assert found or not sorted((samples() / "rocm-twins" / twin).glob(pattern))
    tables = activities(profiles(twin, "rocprof-v1/**/results.csv", v1.TABLE))
    assert {(a.start_ns, a.end_ns) for a in tables} in (set(), set(expected))
