"""TensorFlow's name scopes as layers, and the kernels that were enqueued while one of a layer's ops ran (tfprof.md 7).

An op's execution on a GPU device is the host's time in the op's code: what the host enqueues meanwhile is the op's, if
no other op runs at that moment. Both stamps are the host's wall clock. The profile has no threads: where ops of
different layers run at once, an activity may be of any of them, and is not attributed.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mio2trace.align.attribution import Attribution
from mio2trace.align.layers.net import Net, NetLayerSpec
from mio2trace.align.links import NONE, LayerRun, Links
from mio2trace.evidence import BOUNDARY_STAMPS
from mio2trace.model.log import Direction
from mio2trace.model.tf import TfProfile
from mio2trace.notes import Notes

STAMP_NS = 1000
"""TensorFlow's stamps are whole microseconds."""

_DEVICE = re.compile(
    r"(?P<host>(?:/(?:job|replica|task):[^/]*)*)/(?:device:)?(?P<kind>[a-z_]+):(?P<number>\d{1,9})(?:/(?P<stream>.*))?",
    re.DOTALL,
)
_TOWER = re.compile(
    r"(?:v/tower_(?P<a>\d+)|tower_(?P<b>\d+)/v|v/(?P<c>task_\d+_tower_\d+))/"
    r"(?P<backward>gradients/(?:v/tower_\d+|tower_\d+/v|v/task_\d+_tower_\d+)/)?cg/(?P<path>.+)"
)
_LAYER = re.compile(
    r"(?:conv|mpool|apool|affine|batchnorm|lrn|dropout|spatial_mean|resnet_v\d)\d+|incept_\w+", re.ASCII
)
_BATCH_NORM = re.compile(r"batchnorm\d+", re.ASCII)


class Device(NamedTuple):
    """A device's name taken apart: ``cpu`` 0 of ``/job:localhost/replica:0/task:0``, perhaps one of its streams."""

    host: str
    kind: str
    number: int
    stream: str

    @classmethod
    def of(cls, name: str) -> Device:
        """A name that is built in no known way is a device of its own kind."""
        match = _DEVICE.fullmatch(name)
        if match is None:
            return cls(name, "device", 0, "")
        return cls(match["host"], match["kind"], int(match["number"]), match["stream"] or "")


def layer_of(name: str) -> tuple[str, Direction] | None:
    """(layer, direction) of a node of tf_cnn_benchmarks; None for what belongs to no layer (tfprof.md 1, 7).

    ``v/tower_0/gradients/v/tower_0/cg/conv0/conv2d/Conv2D_grad/Conv2DBackpropInput`` -> ``conv0``, backward.
    """
    match = _TOWER.fullmatch(name)
    if match is None:
        return None
    *scopes, op = match["path"].split("/")
    if match["backward"]:
        scopes = [scope.removesuffix("_grad") for scope in scopes]
    else:
        scopes.append(op)
    layers = [at for at, scope in enumerate(scopes) if _is_layer(scope, first=not at)]
    if layers:
        scopes = scopes[: layers[-1] + 1]
    elif not scopes:
        return None
    elif len(scopes) > 1 and not match["backward"]:
        scopes.pop()
    tower = (match["a"] or match["b"] or "").lstrip("0")
    if match["c"] or tower:
        scopes.insert(0, match["c"] or f"tower_{tower}")
    return "/".join(scopes), "backward" if match["backward"] else "forward"


def _is_layer(scope: str, *, first: bool) -> bool:
    """Whether a scope is named as a layer is; a batch norm within another scope is that one's."""
    return _LAYER.fullmatch(scope) is not None and (first or _BATCH_NORM.fullmatch(scope) is None)


class _Op(NamedTuple):
    """An op's time on the host, and its layer's run (`NONE`: of no layer)."""

    start: int
    end: int
    run: int


def place_by_scopes(attribution: Attribution) -> None:
    """Put the kernels into the layers of TensorFlow's scopes, and take the net that these make, where no log names any.

    Step N of a profile is iteration N + 1. A note says where nothing can be told: no host times, no op on a GPU, no
    layer's name, or stamps that do not meet. Copies are left alone: other threads than the op's enqueue them, too.
    """
    if not attribution.tf_profiles or attribution.net.layers:
        return
    links, profile, notes = attribution.links, attribution.profile, attribution.notes
    net, ops = _layers(links, attribution.tf_profiles, notes)
    if not ops:
        notes.add("TensorFlow's profile names no layer of an op on a GPU: its scopes are no layers of the kernels")
        return
    times = [(e.host_start_ns, position) for position, e in enumerate(profile.activities)
             if e.kind == "kernel" and e.host_start_ns is not None]  # fmt: skip
    without_times = sum(e.kind == "kernel" for e in profile.activities) - len(times)
    placed = between = 0
    running: list[tuple[int, int]] = []
    runs: Counter[int] = Counter()
    following = 0
    for at, position in sorted(times):
        while following < len(ops) and ops[following].start <= at:
            op = ops[following]
            following += 1
            heapq.heappush(running, (op.end, op.run))
            runs[op.run] += 1
        while running and running[0][0] <= at:
            _, ended = heapq.heappop(running)
            runs[ended] -= 1
            if not runs[ended]:
                del runs[ended]
        if len(runs) > 1:
            between += 1
        elif runs and NONE not in runs:
            links.give_layer([position], next(iter(runs)), BOUNDARY_STAMPS)
            placed += 1
    if between:
        notes.add("kernel enqueued while ops of several layers ran: not attributed", count=between)
    if without_times:
        notes.add("kernel without a host time: not attributed to a TensorFlow scope", count=without_times)
    if not placed:
        notes.add("no kernel was enqueued while one of TensorFlow's ops ran: its scopes are no layers of the kernels")
        return
    attribution.net = net


def _layers(links: Links, tf_profiles: Sequence[TfProfile], notes: Notes) -> tuple[Net, list[_Op]]:
    """The net, and every op on a GPU in order of start. No layer is known of profiles that do not number their step."""
    ops_on_gpus: list[tuple[int, int, tuple[str, Direction] | None, int]] = []
    for profile in tf_profiles:
        if not profile.numbered:
            notes.add("TensorFlow's profile of one step does not tell which: its scopes are no layers of the kernels")
            continue
        ops_on_gpus += _on_gpus(profile)
    ops_on_gpus.sort(key=lambda op: op[:2])
    indexes: dict[str, int] = {}
    for wanted in ("forward", "backward"):
        for _, _, layer, _ in ops_on_gpus:
            if layer is not None and layer[1] == wanted:
                indexes.setdefault(layer[0], len(indexes))
    if not indexes:
        return Net(), []
    runs: dict[tuple[str, Direction, int], int] = {}
    ops = []
    for start, end, layer, step in ops_on_gpus:
        run = NONE
        if layer is not None and step >= 0:
            key = (*layer, step)
            if key not in runs:
                name, direction = layer
                runs[key] = links.add_run(
                    LayerRun(
                        layer=name,
                        layer_index=indexes[name],
                        direction=direction,
                        pass_=links.pass_id("iteration", step + 1, direction),
                    )
                )
            run = runs[key]
        ops.append(_Op(start, end + STAMP_NS, run))
    layers = tuple(NetLayerSpec(index=index, layer=name) for name, index in indexes.items())
    backward = any(layer is not None and layer[1] == "backward" for _, _, layer, _ in ops_on_gpus)
    return Net(layers=layers, backward=backward), ops


def _on_gpus(profile: TfProfile) -> Iterator[tuple[int, int, tuple[str, Direction] | None, int]]:
    """(start, end, layer, step) of each op's code on the host for a GPU: a CPU's op activities nothing."""
    for node in profile.nodes:
        layer = layer_of(node.name)
        for step in node.steps:
            for execution in step.executions:
                if execution.kind == "cpu" and Device.of(execution.device).kind != "cpu":
                    yield execution.start_ns, execution.start_ns + execution.dur_ns, layer, step.step
