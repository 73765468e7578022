"""Names of TensorFlow and tf_cnn_benchmarks: devices, and the layer that a node's scopes name (tfprof.md 1, 7)."""

from __future__ import annotations

import re
from typing import NamedTuple

from mio2trace.model.log import Direction
from mio2trace.patterns import late

_DEVICE = late(
    r"(?P<host>(?:/(?:job|replica|task):[^/]*)*)/(?:device:)?(?P<kind>[a-z_]+):(?P<number>\d{1,9})(?:/(?P<stream>.*))?",
    re.DOTALL,
)
_TOWER = late(
    r"(?:v/tower_(?P<a>\d+)|tower_(?P<b>\d+)/v|v/(?P<c>task_\d+_tower_\d+))/"
    r"(?P<backward>gradients/(?:v/tower_\d+|tower_\d+/v|v/task_\d+_tower_\d+)/)?cg/(?P<path>.+)"
)
_LAYER = late(r"(?:conv|mpool|apool|affine|batchnorm|lrn|dropout|spatial_mean|resnet_v\d)\d+|incept_\w+", re.ASCII)
_BATCH_NORM = late(r"batchnorm\d+", re.ASCII)


class DeviceName(NamedTuple):
    """A device's name taken apart: ``cpu`` 0 of ``/job:localhost/replica:0/task:0``, perhaps one of its streams."""

    host: str
    kind: str
    number: int
    stream: str

    @classmethod
    def of(cls, name: str) -> DeviceName:
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
