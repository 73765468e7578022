"""What a run repeats is looked at once: that may not change what any launch or call of it is."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import msgspec
import pytest

from mio2trace.align.operations.rows import Calls, Kernels
from mio2trace.analysis import analyse
from tests.records import other_operation

SETS = ("m121-lenet-train-ownkernels", "m290-lenet-train-cmdonly", "m121-resnet-train-entries-cmd")


@pytest.mark.parametrize("name", SETS)
def test_kernels_and_calls_are_the_same_when_nothing_of_them_is_shared(shared: Path, name: str) -> None:
    """Kinds, buffers, ties to the kernel before, forms of entries."""
    folder = shared / "samples" / "miopen-opencl" / name
    alignment = analyse([str(folder / "run.log"), str(folder / "prof.json")]).runs[0].alignments[0]
    profile, operations = alignment.profile, alignment.links.operations
    apart = [
        msgspec.structs.replace(activity, opencl=copy(activity.opencl), name="".join(activity.name))
        for activity in profile.activities
    ]
    own = [
        other_operation(operation, parameters=copy(operation.parameters), addresses=b"" + operation.addresses)
        for operation in operations
    ]
    positions = [at for at, activity in enumerate(profile.activities) if activity.kind == "kernel"]
    assert len({id(one.opencl) for one in profile.activities}) < len(positions)  # much is shared
    calls, as_own = Calls(operations, with_buffers=True), Calls(own, with_buffers=True)
    for column in ("class_of", "pointers", "namings", "workspaces", "holed", "mixed"):
        assert getattr(as_own, column) == getattr(calls, column), column
    kernels, as_apart = (
        Kernels(one, positions, alignment.facts, calls.namings.keys(), calls.workspaces)
        for one in (profile, msgspec.structs.replace(profile, activities=apart))
    )
    for column in ("kinds", "of", "named", "helped", "apart", "again", "in_row", "gemm_before"):
        assert getattr(as_apart, column) == getattr(kernels, column), column
    every = range(len(kernels))
    assert [*map(as_apart.helpers_buffers, every)] == [*map(kernels.helpers_buffers, every)]
