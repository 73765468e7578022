"""Join kernels of graph launches with captured launches, and GEMM kernels with a BLAS library's log, by names in order.

A capture has the op, its inputs and the modules of each launch (torch-graphs.md 3). A link is sure if the sequence of
names is that of one capture, or lacks only its last launch, as replays of HIP graphs may. No link to a BLAS log is
sure: if it has more calls than kernels, all places that fit must give the same calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from mio2trace.align.attribution import Attribution
from mio2trace.align.exact import calls_of, link_by_ranges
from mio2trace.align.layers.repetitions import matches
from mio2trace.align.links import DOUBTED, NONE, LayerRun, Links, neighbours
from mio2trace.evidence import CAPTURE, GRAPH_NODE, ORDER, Evidence
from mio2trace.kernels.names import kernel_name
from mio2trace.model.choices import GemmTable
from mio2trace.model.log import Direction
from mio2trace.model.profile import Activity, Call, Profile
from mio2trace.model.tables import by_key
from mio2trace.notes import Notes
from mio2trace.ops.choices import operations_of
from mio2trace.ops.operation import Operation
from mio2trace.patterns import late

_TENSILE = late(r"(?:Custom_)?Cijk_A(il|li)k_B(lj|jl)k_")
MOST_COMPARED = 5_000_000
"""Calls compared with kernels: about one second."""


def link_gemms(links: Links, tables: Sequence[GemmTable], notes: Notes) -> None:
    mains, parts = _gemm_kernels(links)
    if not mains or not any(table.order for table in tables):
        return
    names = [links.activities[position].name for position in mains]
    behind = max((operation.index for operation in links.operations), default=NONE) + 1
    for table in tables:
        for order in _orders(table):
            calls = _calls_of(table, order, names)
            if calls is None:
                continue
            made = operations_of(table)
            links.extend([msgspec.structs.replace(made[of], index=behind + at) for at, of in enumerate(calls)])
            for at, position in enumerate(mains):
                links.give_operation([position, *parts.get(position, ())], behind + at, ORDER, confidence=DOUBTED)
            notes.add("GEMM kernel joined with a BLAS library's log by order alone", count=len(mains), problem=False)
            return
    notes.add(
        "GEMM kernel that no BLAS library's log is joined with: numbers, transposes or order of calls do not fit",
        count=len(mains), problem=False,
    )  # fmt: skip


def _gemm_kernels(links: Links) -> tuple[list[int], dict[int, list[int]]]:
    """Return Tensile's kernels without operation, and by these the kernels that finish the same GEMM."""
    commands, is_free = links.commands, np.asarray(links.operation_of) == NONE
    is_own = commands.is_kernel & ~commands.is_replayed & is_free & commands.name.where(lambda name: "Cijk_" in name)
    is_main = is_own & commands.name.where(_does_a_gemm)
    parts: dict[int, list[int]] = {}
    for _, rows in by_key(np.flatnonzero(is_own), commands.queue[is_own]):
        last, _ = neighbours(is_main[rows])
        for position, main in zip(rows.tolist(), last.tolist(), strict=True):
            if main != NONE and not is_main[position]:
                parts.setdefault(int(rows[main]), []).append(position)
    return np.flatnonzero(is_main).tolist(), parts


def _does_a_gemm(name: str) -> bool:
    helps = (meaning := kernel_name(name)) is not None and meaning.helps
    return _TENSILE.match(name) is not None and not helps


def _orders(table: GemmTable) -> Iterator[Sequence[int]]:
    """Yield the calls of all libraries, then of each: one may call the other, and both print the call."""
    yield table.order
    libraries = [gemm.library for gemm in table.gemms]
    for library in dict.fromkeys(libraries) if len(set(libraries)) > 1 else ():
        yield [of for of in table.order if libraries[of] == library]


def _calls_of(table: GemmTable, order: Sequence[int], names: Sequence[str]) -> Sequence[int] | None:
    """Return the call of each kernel; None if nothing fits, or if several places with different calls do."""
    turned = {name: (found[1] == "li", found[2] == "jl") for name in set(names) if (found := _TENSILE.match(name))}
    wanted = [(gemm.trans_a, gemm.trans_b) for gemm in table.gemms]
    left = MOST_COMPARED
    fits: Sequence[int] | None = None
    for begin in range(len(order) - len(names) + 1):
        of_call: dict[int, str] = {}
        compared = 0
        for of, name in zip(order[begin : begin + len(names)], names, strict=True):
            compared += 1
            if turned[name] != wanted[of] or of_call.setdefault(of, name) != name:
                break
        else:
            calls = order[begin : begin + len(names)]
            if fits is not None and fits != calls:
                return None
            fits = calls
        left -= compared + len(names) // 8  # a slice is copied
        if left < 0:
            return None
    return fits


LEAST_KERNELS = 8
"""A shorter sequence without its last launch may be another graph's."""
LEAST_IN_PART = 0.5
"""Share of a replay's kernels that a capture must have in the same order for a guess."""
_TRIED = 4
"""Captures that are compared with a part of a replay: those with most common names."""


class Layer(msgspec.Struct, frozen=True):
    """A layer of a captured launch. ``within``: the layer around it. ``confidence``: of the captured launch."""

    name: str
    direction: Direction | None
    within: str = ""
    confidence: float = 1.0


class Fit(msgspec.Struct, frozen=True):
    """The captured launch of each kernel of a replay. ``places``: of each kernel's launch in the capture, or `NONE`.
    ``sure``: kernels with a sure launch."""

    capture: int
    places: Sequence[int]
    sure: frozenset[int]


class Replay(msgspec.Struct, frozen=True):
    """A graph launch: positions of kernels by index of their operation, and by layer if sure."""

    by: Evidence
    operations: Mapping[int, Sequence[int]]
    layers: Mapping[Layer, Sequence[int]]
    unsure: frozenset[int]


class Matcher:
    """Finds the capture of each replay by the names of its kernels. ``tails``: replays that lack the last launch of
    their capture."""

    def __init__(self, captures: Sequence[tuple[str, ...]]) -> None:
        self._captures = captures
        self._equal: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, names in enumerate(captures):
            self._equal[names].append(number)
        self._turn: Counter[tuple[str, ...]] = Counter()
        self._others: dict[tuple[str, ...], Fit | None] = {}
        self.tails = 0

    def fit(self, names: tuple[str, ...]) -> Fit | None:
        """Return the capture of a replay; equal captures take turns."""
        equal = self._equal.get(names)
        if equal:
            number = equal[self._turn[names] % len(equal)]
            self._turn[names] += 1
            whole = range(len(names))
            return Fit(number, whole, frozenset(whole) if len(equal) == 1 else frozenset())
        if names not in self._others:
            self._others[names] = self._without_tail(names) or self._in_part(names)
        fit = self._others[names]
        self.tails += fit is not None and bool(fit.sure)
        return fit

    def _without_tail(self, names: tuple[str, ...]) -> Fit | None:
        """The end is unsure where equal names leave open which launch is missing."""
        longer = [number for number, one in enumerate(self._captures) if one[:-1] == names]
        if len(longer) != 1 or len(names) < LEAST_KERNELS:
            return None
        last = self._captures[longer[0]][-1]
        sure = len(names)
        while sure and names[sure - 1] == last:
            sure -= 1
        return Fit(longer[0], range(len(names)), frozenset(range(sure)))

    def _in_part(self, names: tuple[str, ...]) -> Fit | None:
        """Match equal names in another order by count, else the longest common subsequence."""
        bag = Counter(names)
        common = sorted((-(bag & Counter(one)).total(), number) for number, one in enumerate(self._captures))[:_TRIED]
        for shared, number in common:
            if -shared == len(names) == len(self._captures[number]):
                places_of: dict[str, list[int]] = defaultdict(list)
                for place, name in enumerate(self._captures[number]):
                    places_of[name].append(place)
                turns = {name: iter(its) for name, its in places_of.items()}
                return Fit(number, [next(turns[name]) for name in names], frozenset())
        best, of = list[tuple[int, int]](), NONE
        for shared, number in common:
            if -shared >= LEAST_IN_PART * len(names) and -shared > len(best):
                pairs = matches(names, self._captures[number]) or []
                if len(pairs) >= LEAST_IN_PART * len(names) and len(pairs) > len(best):
                    best, of = pairs, number
        place_of = dict(best)
        return Fit(of, [place_of.get(at, NONE) for at in range(len(names))], frozenset()) if best else None


_RUNTIME = "__amd_rocclr_"
"""Copies and fills of a graph run as kernels of this name; their launches have no name."""


class _Capture(msgspec.Struct, frozen=True):
    """Per launch: kernel name, operation, layer. ``unsure``: launches with an uncertain operation."""

    names: tuple[str, ...]
    operations: tuple[Operation | None, ...]
    layers: tuple[Layer | None, ...]
    unsure: frozenset[int]


def join_replays(
    profile: Profile, captures: Sequence[Profile], behind: int, notes: Notes
) -> tuple[list[Replay], list[Operation]]:
    """Join graph launches of ``profile`` with its own captures and ``captures``. Operations begin at ``behind``."""
    of_any = [one for one in (profile, *captures) if one.captured]
    commands = profile.commands
    is_own = commands.is_kernel & commands.is_replayed & ~commands.name.where(lambda name: name.startswith(_RUNTIME))
    launches = dict(by_key(np.flatnonzero(is_own), commands.call[is_own].astype(np.int64))) if of_any else {}
    if not launches:
        return [], []
    captured = [capture for one in of_any for capture in _captures(one)]
    matcher = Matcher([capture.names for capture in captured])
    found: list[Replay] = []
    operations: list[Operation] = []
    joined = unsure = 0
    for own in launches.values():
        positions = own.tolist()
        by = _in_order(profile, positions)
        fit = matcher.fit(tuple(profile.activities[position].name for position in positions))
        if fit is None:
            continue
        replay = _replay(positions, fit, captured[fit.capture], by, operations, behind)
        joined += sum(map(len, replay.operations.values()))
        unsure += len(replay.unsure)
        found.append(replay)
    kernels = sum(map(len, launches.values()))
    if joined < kernels:
        notes.remark("kernel of a graph whose capture is not recorded: in no operation", count=kernels - joined)
    if unsure:
        notes.remark(
            "kernel of a graph that may belong to another captured launch: its links have low confidence", count=unsure
        )
    if matcher.tails:
        notes.remark("launch at the end of a capture that has no kernel in a replay", count=matcher.tails)
    return found, operations


def _in_order(profile: Profile, positions: list[int]) -> Evidence:
    """Sort a replay's kernels by the graph's nodes if all are numbered, else by time. Returns the evidence."""
    activities = profile.activities
    nodes = {position: node for position in positions if (node := activities[position].graph_node) is not None}
    if len(set(nodes.values())) == len(positions):
        positions.sort(key=nodes.__getitem__)
        return GRAPH_NODE
    positions.sort(key=lambda position: (activities[position].start_ns or 0, position))
    return CAPTURE


def _replay(
    positions: Sequence[int], fit: Fit, capture: _Capture, by: Evidence, operations: list[Operation], behind: int
) -> Replay:
    own: dict[int, int] = {}
    of_operation: dict[int, list[int]] = defaultdict(list)
    layers: dict[Layer, list[int]] = defaultdict(list)
    unsure = set()
    for number, (position, place) in enumerate(zip(positions, fit.places, strict=True)):
        operation = capture.operations[place] if place != NONE else None
        if operation is None:
            continue
        index = own.get(operation.index)
        if index is None:
            index = own[operation.index] = behind + len(operations)
            operations.append(msgspec.structs.replace(operation, index=index))
        of_operation[index].append(position)
        layer = capture.layers[place]
        if number not in fit.sure or place in capture.unsure:
            unsure.add(position)
        elif layer is not None:
            layers[layer].append(position)
    return Replay(by, of_operation, layers, frozenset(unsure))


def _captures(profile: Profile) -> list[_Capture]:
    """Link captured launches to ops and modules as if they had run."""
    launches = profile.captured
    calls = [Call("", one.thread, one.start_ns, one.start_ns) for one in launches]
    ran = msgspec.structs.replace(
        profile,
        activities=tuple(
            Activity(number, "kernel", one.name, call=call, range=one.range)
            for number, (one, call) in enumerate(zip(launches, calls, strict=True))
        ),
        captured=(),
    )
    notes = Notes()  # the profile itself is joined apart
    told = calls_of(ran, (), 0, notes)
    attribution = Attribution(
        ran, notes, operations=told.operations, operation_of_range=told.of_range, opened=told.opened,
        weights_of=told.weights_of,
    )  # fmt: skip
    link_by_ranges(attribution)
    links = attribution.links
    of_capture: dict[int, list[int]] = defaultdict(list)
    for place, one in enumerate(launches):
        if not one.name.startswith(_RUNTIME):
            of_capture[one.capture].append(place)
    within = {one.layer: one.within for one in attribution.net.layers}

    def layer_of(place: int) -> Layer | None:
        if links.run_of[place] == NONE:
            return None
        run = links.runs[links.run_of[place]]
        return Layer(run.layer, run.direction, within.get(run.layer, ""), links.layer_confidence.get(place, 1.0))

    found = []
    for places in of_capture.values():
        indexes = [links.operation_of[place] for place in places]
        found.append(
            _Capture(
                tuple(launches[place].name for place in places),
                tuple(None if index == NONE else told.operations[index] for index in indexes),
                tuple(map(layer_of, places)),
                frozenset(at for at, place in enumerate(places) if place in links.operation_unsure),
            )
        )
    return found


def link_replays(attribution: Attribution) -> None:
    """Give replayed kernels their operations, and their layers if they are sure."""
    links, net = attribution.links, attribution.net
    index_of = {one.layer: one.index for one in net.layers}
    known = len(index_of)
    within = {layer.name: layer.within for one in attribution.replays for layer in one.layers}
    for replay in attribution.replays:
        for index, positions in replay.operations.items():
            unsure = [position for position in positions if position in replay.unsure]
            sure = [position for position in positions if position not in replay.unsure]
            links.give_operation(sure, index, replay.by)
            links.give_operation(unsure, index, replay.by, confidence=DOUBTED)
        for layer, positions in replay.layers.items():
            index = index_of.setdefault(layer.name, max(index_of.values(), default=-1) + 1)
            _give_layer(attribution, layer, index, positions, replay.by)
    if len(index_of) > known:
        backward = any(layer.direction == "backward" for one in attribution.replays for layer in one.layers)
        named = [(index, name, within[name]) for name, index in [*index_of.items()][known:]]
        attribution.net = net.with_layers(named, backward=backward)


def _give_layer(attribution: Attribution, layer: Layer, index: int, positions: Sequence[int], by: Evidence) -> None:
    links = attribution.links
    of_pass: dict[int, list[int]] = defaultdict(list)
    for position in positions:
        run = links.run_of[position]
        if links.pass_of[position] != NONE and (run == NONE or links.runs[run].layer != layer.name):
            of_pass[links.pass_of[position]].append(position)
    for pass_, members in of_pass.items():
        made = links.passes[pass_]
        if made.phase == "iteration":
            pass_ = links.pass_id("iteration", made.iteration, layer.direction, repeated=made.repeated)
        made_run = LayerRun(layer=layer.name, layer_index=index, direction=layer.direction, pass_=pass_)
        links.refine_layer(members, links.runs.add(made_run), by, confidence=layer.confidence)
