"""Gates: how many links of damaged runs with truth are right, and how sure they may be, by what each run shows."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pytest

from benchmarks.damage import measured
from benchmarks.damages.prints import LINES
from benchmarks.damages.sets import BARE_TWIN, HANDLES, HIDDEN, NO_FRAMEWORK, TWIN
from mio2trace.align.links import SURE
from mio2trace.align.rates import CONTRARY, LAST
from tests.conftest import shared_folder

pytestmark = pytest.mark.shared


class Gate(NamedTuple):
    """A damage of a run, and what its links must be. No link is wrong and sure, and at least one link exists."""

    row: str
    name: str
    variant: str
    seed: int = 0
    right: float = 0
    """The least part of the kernels that is right; above 1 their number."""
    links: float = 0
    """The least part of the kernels that has a link."""
    mean: float = 0
    """The least mean confidence of the links, ..."""
    most: float = 1
    """... and the greatest one."""
    false: int | None = None
    """The greatest number of wrong links, ..."""
    beyond: int = 0
    """... counted among the links whose confidence is this many tenths or more."""
    believed: int | None = None
    """The greatest number of links with a confidence of at least 0.5. No link, or refused files, are right as well."""


def runs(
    row: str | Sequence[str], name: str | Sequence[str], variant: str | Sequence[str], *seeds: int, **limits: Any
) -> Iterator[Gate]:
    """A gate for each damage of each run in each variant."""
    rows, names, variants = ((one,) if isinstance(one, str) else one for one in (row, name, variant))
    for damage in rows:
        for run in names:
            yield from (Gate(damage, run, kind, seed, **limits) for kind in variants for seed in seeds or (0,))


LENET, ALEXNET_10, ALEXNET_6 = "m121-lenet-infer", "m290-alexnet-infer-10it", "m290-alexnet-infer-level6-cmd"
DEBUG, OWN_KERNELS, CMD_ONLY = "m121-lenet-train-debugbuild", "m121-lenet-train-ownkernels", "m290-lenet-train-cmdonly"
RESNET_2, TRAIN_121, TRAIN_290 = (
    "m121-resnet-infer-2it",
    "m121-resnet-train-entries-cmd",
    "m290-resnet-train-entries-cmd",
)
ALL = (HANDLES, HIDDEN, NO_FRAMEWORK)
FUSED, RNN = "m290-resnet-infer-immediate-fused", "m121-rnn-infer-first"
RANKS, RANK0 = "twin-resnet-immediate-2ranks-run-rocpd", "twin-resnet-immediate-2ranks-run.rank0-rocpd"
TWIN_6, TWIN_6_V1 = "twin-alexnet-level6-none-run.hip-rocpd", "twin-alexnet-level6-none-run.hip-rocprof-v1"
TWIN_CMD = "twin-lenet-cmdonly-kernel-trace-run.hip-rocpd"
CAFFE = ("alexnet-b1-fwd-nomarks", "lenet-b2-fwd", "lenet-b2-viennacl-fwd", "squeezenet11-b1-fwd-tz")
EARLIER_OR_LATER = ("the program's earlier run before", "the program's later run after")
LIBDNN, TRAIN, TRAIN_2 = "squeezenet11-b1-libdnn-fwd", "alexnet-b1-train", "alexnet-b3-libdnn-train-iter2"

OPERATIONS: dict[str, Sequence[Gate]] = {
    "each dispatch of a twin counts once": [*runs("as recorded", RANKS, TWIN, right=1, links=1)],
    "names, sizes and order are enough where a profile has no arguments": [
        *runs("as recorded", (TWIN_6, RANKS), TWIN, right=1)
    ],
    "no launch line has the HIP runtime's copies, and an entry whose workspace is nullptr lacks nothing": [
        *runs("as recorded", (TWIN_6, TWIN_6_V1), TWIN, right=1, links=1, mean=0.97)
    ],
    "recurrent calls of many kernels end where their descriptors say": [*runs("as recorded", RNN, ALL, right=1)],
    "no call that launched nothing is beside a kernel that fits it, whatever is left out of the log": [
        *runs("as recorded", (LENET, ALEXNET_6, DEBUG, OWN_KERNELS, RESNET_2, FUSED), (HIDDEN, NO_FRAMEWORK), right=1)
    ],
    "links stay right where names are cut": [
        *runs("names cut", DEBUG, HIDDEN, right=1),
        *runs("names cut", ALEXNET_6, NO_FRAMEWORK, right=1),
        *runs("names cut", CMD_ONLY, HANDLES, right=1),
    ],
    "a hashed name is one event for all of its kernels: linked somewhere, it counts elsewhere": [
        *runs("3 of 10 names hashed", DEBUG, HIDDEN, right=0.95),
        *runs("3 of 10 names hashed", TRAIN_290, HIDDEN, right=0.9),
        *runs("3 of 10 names hashed", TRAIN_121, NO_FRAMEWORK, right=0.95),
        *runs("3 of 10 names hashed", CMD_ONLY, HANDLES, right=0.88),
    ],
    "a log of wrapped commands gives every kernel its operation": [
        *runs("long lines wrapped", TWIN_CMD, TWIN, right=1)
    ],
    "times that are exact to a second bound no call: the order says the rest": [
        *runs("host times in s", ALEXNET_10, HANDLES, right=0.99),
        *runs("stamps 0.8 s late", LENET, HIDDEN, right=0.99),
        *runs("stamps 0.8 s early", ALEXNET_10, HIDDEN, right=0.99),
    ],
    "stamps in whole seconds are truncated, so a call may have run up to a second after its stamp": [
        *runs("stamps in s", LENET, HANDLES, right=1)
    ],
    "the clock jumps by an hour between two lines, so the order of calls decides": [
        *runs("stamps step by an hour", ALEXNET_10, HIDDEN, right=336),
        *runs("stamps step by an hour", LENET, HIDDEN, right=26),
        *runs("stamps step by an hour", TRAIN_290, HIDDEN, right=535),
        *runs("stamps step by an hour", RESNET_2, HIDDEN, right=200),
    ],
    "a clock that goes wrong is no other run if its dates are the profile's": [
        *runs(("stamps step by 5 ms", "stamps run 2 % fast"), ALEXNET_10, HIDDEN, false=0, mean=0.9)
    ],
    "one rate makes all stamps keep time; of another run none does": [
        *runs("stamps run 2 % fast", FUSED, HIDDEN, links=1, mean=0.5),
        *runs("the program's log of another day", FUSED, HIDDEN, believed=0),
    ],
    "the order of calls decides which of two threads of one net used which queue": [
        *runs("two threads with ids", ALEXNET_6, HIDDEN, right=0.99)
    ],
    "a recurrent call launches for as long as another thread runs half of its net": [
        *runs("two threads without ids", LENET, HIDDEN)
    ],
    "one process launched the kernels, so the log's calls of other processes are left out": [
        *runs("another's lines between, with ids", TRAIN_290, NO_FRAMEWORK, right=0.98)
    ],
    "a command without a thread is of the call entered last": [
        *runs("another's lines between, with ids", TRAIN_121, HIDDEN, right=0.95, mean=0.97)
    ],
    "one version of the library prints the handle, the other does not": [
        *runs("another's lines between, without ids", ALEXNET_6, NO_FRAMEWORK, right=0.9),
        *runs("another's lines between, without ids", OWN_KERNELS, HIDDEN, right=0.9),
    ],
    "entries that were mixed up look like the other version's, and name their own buffers": [
        *runs("another's lines between, without ids", TRAIN_290, HANDLES, right=0.96)
    ],
    "one process prints entries and another does not; if both run one net, no link by names is sure": [
        *runs("another's lines between, without ids", CMD_ONLY, NO_FRAMEWORK, most=0.6)
    ],
    "the true call lies farther on than a search tries, a name goes on, or one launch line would be of two kernels": [
        *runs("iterations only in the profile", ALEXNET_10, NO_FRAMEWORK, right=0.75),
        *runs("middle fifth of the profile lost", TRAIN_290, NO_FRAMEWORK, right=0.98),
        *runs("profile begins late", ALEXNET_6, NO_FRAMEWORK, right=0.98),
        *runs("middle fifth of the log lost", TWIN_6_V1, TWIN, right=0.9),
    ],
    "of ten iterations alike the profile has the first or the last ones: nothing is in the others": [
        *runs(
            ("profile ends early", "profile begins late", "iterations only in the log"),
            ALEXNET_10,
            (HANDLES, NO_FRAMEWORK),
            right=0.98,
            mean=0.97,
        )
    ],
    "a convolution whose own descriptor is cut off keeps its tensors": [
        *runs("lines cut at 80", TRAIN_290, NO_FRAMEWORK, right=1),
        *runs("lines cut at 200", TRAIN_290, HANDLES, right=1),
    ],
    "batch norms and activations around a convolution launch no transposes, whatever other calls of theirs did": [
        *runs("transposes around convolutions", RESNET_2, (HIDDEN, NO_FRAMEWORK), right=1)
    ],
    "kernels without a call may be of calls far ahead in the log, also those that run before the first link": [
        *runs("another program's log before", (RESNET_2, OWN_KERNELS), NO_FRAMEWORK, right=1)
    ],
    "each part of a recurrent call has one GEMM, each step activations of its size": [
        *runs(("another program's log before", "another program's log after"), RNN, NO_FRAMEWORK, right=0.99, mean=0.9),
        *runs("ring buffers of log and profile", RNN, NO_FRAMEWORK, right=0.99, mean=0.9),
        *runs("profile ends early", RNN, HIDDEN, right=0.99, mean=0.9),
        *runs("3 of 10 names hashed", RNN, NO_FRAMEWORK, right=0.9, mean=0.9),
    ],
    "what scales for a GEMM is no part of a recurrent call by itself": [
        *runs("another program's log before", CMD_ONLY, NO_FRAMEWORK)
    ],
    "a call launched only if most of its parts did": [*runs("another run's log", TRAIN_121, NO_FRAMEWORK, believed=0)],
    "a kernel between two recurrent calls may belong to either if the profile lost a part of them": [
        *runs("middle fifth of the profile lost", RNN, NO_FRAMEWORK)
    ],
    "most calls launched nothing: they come last and begin no run: the profile ended": [
        *runs("profile ends early", RESNET_2, NO_FRAMEWORK, right=0.98, mean=0.89),
        *runs("profile ends early", CMD_ONLY, NO_FRAMEWORK, right=0.95, mean=0.85),
    ],
    "either of two runs in a log is likely": [
        *runs(("the program's earlier run before", "whole log twice"), CMD_ONLY, NO_FRAMEWORK, mean=0.41, most=0.61)
    ],
    "a log of two runs gives the run whose stamps may be the profile's, with low confidence": [
        *runs(
            "the program's later run after",
            (TWIN_6, TWIN_6_V1),
            TWIN,
            right=1,
            mean=0.99 - CONTRARY,
            most=1.01 - CONTRARY,
        )
    ],
    "the run whose stamps keep time with the profile is known; if nothing tells the runs apart, all is in doubt": [
        *runs(EARLIER_OR_LATER, RANK0, TWIN, right=1, mean=LAST),
        *runs(EARLIER_OR_LATER, FUSED, NO_FRAMEWORK, most=LAST),
    ],
    "lines of two processes stand between each other's, and each process is known by its id": [
        *runs("another's lines between, with ids", ALEXNET_10, HANDLES, right=1)
    ],
    "the run that is as long as the profile gets the kernels, or the links have low confidence": [
        *runs(
            "the program's killed run before",
            (ALEXNET_10, TRAIN_290, LENET),
            NO_FRAMEWORK,
            right=0.3,
            links=0.9,
            false=0,
            beyond=9,
        )
    ],
    "the rank whose stamps keep time with the profile is known": [
        *runs("ranks of a launcher with equal ids", DEBUG, HIDDEN, right=1, mean=0.99)
    ],
    "calls that the log ends with are the profile's last ones": [
        *runs("last 500 lines of the log", RESNET_2, (HANDLES, NO_FRAMEWORK), false=0, beyond=9),
        *runs("first and last fifth of the log", RESNET_2, (HANDLES, HIDDEN), false=0, beyond=9),
        *runs("first and last fifth of the log", RANKS, BARE_TWIN, false=0, beyond=9),
    ],
    "stamps of a buffered stream bound calls on one side": [
        *runs(("framework's lines in blocks", "MIOpen's lines in blocks"), (LENET, RESNET_2, FUSED), HIDDEN, right=1)
    ],
    "no stream is buffered where a tool left kernels out": [
        *runs("kernels under 0.5 ms lost", LENET, HANDLES, right=3),
        *runs("kernels under 0.5 ms lost", ALEXNET_10, HANDLES, right=52),
        *runs("kernels under 0.5 ms lost", ALEXNET_6, HANDLES, right=10),
    ],
    "of 22 kernels that a tool left the last five fit the searches that the log begins with": [
        *runs("kernels under 0.5 ms lost", ALEXNET_6, NO_FRAMEWORK)
    ],
    "what a damage took is not found elsewhere for sure": [
        *runs("log begins late", TRAIN_290, NO_FRAMEWORK, 1),
        *runs("2 % of lines lost", DEBUG, NO_FRAMEWORK, 1),
        *runs("another program's log before", TRAIN_121, NO_FRAMEWORK, 1),
        *runs("another program's log before", CMD_ONLY, NO_FRAMEWORK, 2),
        *runs("ranks of a launcher with equal ids", LENET, NO_FRAMEWORK, 1),
        *runs("5 % of lines lost", TWIN_6, BARE_TWIN, 1),
    ],
    "a log of commands alone, without entries of another program, is joined with low confidence": [
        *runs(
            ("another program's log before", "another program's log after"), CMD_ONLY, HANDLES, right=0.75, believed=0
        )
    ],
    "twice the images at the same moments: kernels launch what half of them needs": [
        *runs("the program's log of another batch", TRAIN_290, HIDDEN, most=0.05),
        *runs("the program's log of another batch", ALEXNET_10, NO_FRAMEWORK, most=0.05),
        *runs("the program's log of another batch", RANKS, TWIN, most=0.05),
        *runs("as recorded", TRAIN_290, HIDDEN, mean=0.9),
        *runs("as recorded", ALEXNET_10, NO_FRAMEWORK, mean=0.9),
    ],
    "lines that stand twice change no link": [
        *runs([f"3 % of {kind} lines twice" for kind in LINES], RESNET_2, HANDLES, right=1)
    ],
    "all that is the profile's is joined: a log in two files, two loops, rows that somebody sorted, names of a build": [
        *runs(("log in two files", "sorted by name", "names end in a version"), LENET, ALL, right=1),
        *runs(("two loops in one process", "ranks of a launcher with equal ids"), LENET, (HANDLES, HIDDEN), right=1),
        *runs("the program's earlier run before", LENET, HIDDEN, right=1),
    ],
    "stamps of another run relate no clock": [
        *runs("the program's log of another time, the same ids", TWIN_6, TWIN, believed=0)
    ],
}

LAYERS: dict[str, Sequence[Gate]] = {
    "a profile that ends inside the iteration has the whole warm-up": [
        *runs("profile ends early", (*CAFFE, LIBDNN), HANDLES, right=1)
    ],
    "if a log ends early, the rest of the iteration still gets its layers": [
        *runs("log ends early", (LENET, FUSED), HANDLES, right=1),
        *runs("log ends early", RANKS, TWIN, right=92),
        *runs("log ends early", RANK0, TWIN, right=87),
    ],
    "if the line that begins the benchmark is lost, all before the last search is set-up": [
        *runs("middle fifth of the log lost", TRAIN_290, HIDDEN, right=440),
        *runs("log ends early", ALEXNET_6, HIDDEN, right=44),
        *runs("log ends early", TWIN_6, TWIN, right=50),
    ],
    "a log cut off while the net was set up names the layers that the marks cut": [
        *runs("log ends early", (CAFFE[0], TRAIN, TRAIN_2), HANDLES, right=0.95, mean=0.95)
    ],
    "iterations that lost lines in the middle get the layers of the complete iteration": [
        *runs("middle fifth of the log lost", ALEXNET_10, HANDLES, right=1)
    ],
    "the first layer that a late log still has does not take all that ran before it": [
        *runs("log begins late", TWIN_CMD, TWIN, false=5, beyond=5)
    ],
    "searches run the kernels of an iteration, and others between them: they are no warm-up": [
        *runs("log begins late", CMD_ONLY, HANDLES, false=0)
    ],
    "marks cut a profile that ends before the log, and every layer is sure": [
        *runs("profile ends early", (TRAIN, CAFFE[3], LIBDNN), HANDLES, false=0, mean=0.95)
    ],
    "marks need no fine host times": [*runs("host times in s", CAFFE[2], HANDLES, false=0, mean=0.99)],
    "what has no parameters has nothing to be written": [*runs("as recorded", TRAIN_2, HANDLES, right=1)],
    "Caffe's log alone gives the layers of kernels with times": [
        *runs("names, times, sizes only", (*CAFFE, LIBDNN), HANDLES, right=1),
        *runs("names, times, sizes only", TRAIN, HANDLES, right=202),
        *runs("names, times, sizes only", TRAIN_2, HANDLES, right=170),
    ],
    "calls give the layers if no time does": [
        *runs("no host times", ALEXNET_10, HIDDEN, right=336),
        *runs(("names, times, sizes only", "stamps step by an hour"), RESNET_2, HANDLES, right=206),
        *runs("lines lost in bursts", ALEXNET_10, HIDDEN, right=300),
        *runs("host times in s", FUSED, HANDLES, right=77),
        *runs("host times in s", TRAIN_290, HIDDEN, right=515),
        *runs("as recorded", TWIN_6_V1, TWIN, right=83),
        *runs("as recorded", TRAIN_290, HANDLES, right=541),
        *runs("5 % of lines lost", TRAIN_290, HANDLES, right=530),
    ],
    "an LSTM's call belongs to the layer with LSTM in its name": [
        *runs("stamps in s", RNN, (HANDLES, HIDDEN), right=0.98, mean=0.95)
    ],
    "lines and calls keep their order whatever the clock does: stamps that may be off by more are not asked": [
        *runs("host times in s", TRAIN_121, HANDLES, right=437),
        *runs("stamps run 2 % fast", TRAIN_121, HIDDEN, right=430),
        *runs("stamps run 2 % fast", RESNET_2, HIDDEN, right=1),
    ],
    "a clock that was set by milliseconds moves lines into calls of the thread that prints them": [
        *runs("stamps step by 5 ms", FUSED, HIDDEN, right=77),
        *runs("stamps step by 5 ms", OWN_KERNELS, HIDDEN, right=44),
        *runs("stamps step by 5 ms", TRAIN_290, HIDDEN, right=541),
    ],
    "stamps that all lie between calls at one offset, and printed times that are those at the marks, are no chance": [
        *runs("stamps 0.8 s late", DEBUG, HIDDEN, right=0.99, mean=0.98),
        *runs("stamps of Nepal's zone", CAFFE[3], HANDLES, right=0.99, mean=0.98),
    ],
    "one mark cannot distinguish a wrong clock from another run": [
        *runs("the program's log of another day", CAFFE[2], HANDLES, believed=0)
    ],
    "a run of half a second has few calls, so another run may fit as well": [
        *runs("the program's log of another day", RNN, HIDDEN, 0, 1, 2, 3, believed=0),
        *runs("stamps 0.8 s late", RNN, HIDDEN, 0, 1, 2, 3, mean=0.99),
    ],
    "bounds that an activity crosses by less than the clock is known to contradict nothing": [
        *runs(("stamps 0.8 s late", "stamps 0.8 s early"), OWN_KERNELS, HIDDEN, right=49, mean=0.95)
    ],
    "lines that a buffered stream brought late bound no layers": [
        *runs("framework's lines in blocks", (TRAIN_121, FUSED), HANDLES, right=1)
    ],
    "stamps of a buffered stream bound calls on one side": [
        *runs(("framework's lines in blocks", "MIOpen's lines in blocks"), (LENET, RESNET_2, FUSED), HIDDEN, right=0.98)
    ],
    "iterations around late calls have low confidence": [
        *runs("MIOpen's lines in blocks", ALEXNET_10, HANDLES, right=0.85)
    ],
    "a fit of printed times is not sure where iterations differ in length": [
        *runs("2 % of kernels lost", ALEXNET_10, HANDLES)
    ],
    "a log of two programs gives no layers of the other program": [
        *runs(
            ("another program's log before", "another's lines between, without ids"), FUSED, HANDLES, right=1, links=1
        ),
        *runs("another program's log before", CMD_ONLY, HANDLES, believed=0),
        *runs("another program's log after", CMD_ONLY, HANDLES, believed=0),
    ],
    "layers of one name in two nets keep their places": [
        *runs("another's lines between, with ids", RESNET_2, HANDLES, right=1)
    ],
    "what did not run meanwhile is no other thread's work": [
        *runs("two loops in one process", FUSED, (HANDLES, HIDDEN), right=1, links=1, mean=SURE)
    ],
    "names, stamped lines or buffers show which queue belongs to the thread that printed the layers": [
        *runs("two threads with ids", FUSED, HANDLES, right=413, mean=0.89),
        *runs("two threads with ids", ALEXNET_10, (HIDDEN, HANDLES), right=413, mean=0.89),
        *runs("two threads without ids", DEBUG, HIDDEN, right=125, mean=0.89),
        *runs("two threads without ids", TRAIN_121, HANDLES, right=886, mean=0.89),
    ],
    "lines that stand twice change no link": [
        *runs([f"3 % of {kind} lines twice" for kind in LINES], RESNET_2, HANDLES, right=1)
    ],
    "the program's earlier run gives no layers": [*runs("the program's earlier run before", LENET, HIDDEN, right=1)],
    "the run whose stamps keep time with the profile is known": [
        *runs(EARLIER_OR_LATER, RANK0, TWIN, right=1, links=1, mean=LAST)
    ],
    "lines of two processes stand between each other's, and each process is known by its id": [
        *runs("another's lines between, with ids", ALEXNET_10, HANDLES, right=1)
    ],
    "the process is the profile's if that names its threads": [*runs("as recorded", RANKS, TWIN, right=0.8)],
    "the same stamps again are no later run": [*runs("whole log twice", CAFFE[1], HANDLES, right=1, mean=1)],
    "printed means are those of all iterations, and lost ones of any layer": [
        *runs("5 % of lines lost", ALEXNET_10, HIDDEN, right=0.99, false=0, beyond=6),
        *runs("middle fifth of the log lost", ALEXNET_10, HIDDEN, right=0.95, false=0, beyond=6),
        *runs("iterations only in the log", ALEXNET_10, HIDDEN, right=0.95, false=0, beyond=6),
    ],
    "of stamps in seconds an iteration may begin anywhere: even spread alone makes no layer likely": [
        *runs("stamps in s", TRAIN_121, HIDDEN, right=0.98, mean=0.989)
    ],
    "runs that are alike have the same layers": [
        *runs(("the program's earlier run before", "whole log twice"), RANKS, TWIN, right=1, mean=0.98)
    ],
}


def of(
    kind: Literal["operations", "layers"], gates: Mapping[str, Sequence[Gate]]
) -> list[tuple[Literal["operations", "layers"], str, Gate]]:
    return [(kind, shown, gate) for shown, of_claim in gates.items() for gate in of_claim]


once = functools.cache(measured)


@pytest.mark.parametrize(("kind", "shown", "gate"), [*of("operations", OPERATIONS), *of("layers", LAYERS)])
def test_links_of_a_damaged_run_are_right_or_in_doubt(
    kind: Literal["operations", "layers"], shown: str, gate: Gate
) -> None:
    result = once(shared_folder(), gate[:4])
    tally = result.operations if kind == "operations" else result.layers
    assert not result.crashed, shown
    assert tally.wrong_and_sure == 0, shown
    assert tally.right >= (gate.right if gate.right > 1 else gate.right * tally.kernels), shown
    if gate.believed is not None:
        assert tally.believed <= gate.believed, shown
        return
    assert tally.links > 0 or gate.right > 1, (shown, result.refused)
    assert tally.links >= gate.links * tally.kernels, shown
    assert gate.mean - 1e-9 <= tally.mean <= gate.most + 1e-9, shown
    if gate.false is not None:
        assert sum(count - true for count, _, true in tally.bins[gate.beyond : 10]) <= gate.false, shown
