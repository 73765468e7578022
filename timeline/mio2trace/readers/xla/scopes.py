"""The part of a network that an op is in, by the path that JAX and TensorFlow give it (xspace.md 6).

jit(train_step)/jvp(ResNet)/Block_3/Conv_0/conv_general_dilated             ResNet/Block_3/Conv_0, forward
jit(train_step)/transpose(jvp(ResNet))/Block_3/Conv_0/conv_general_dilated  the same, backward
gradient_tape/model/conv1/Conv2D/Conv2DBackpropFilter                       model/conv1/Conv2D, backward
"""

from __future__ import annotations

import re
from functools import lru_cache

from mio2trace.model.log import Direction

_LONGEST, _DEEPEST = 4000, 40
_WRAPPED = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,40})\((.*)\)", re.DOTALL)
_PROGRAMS = frozenset(("jit", "pjit", "pmap", "xla_call", "shard_map", "xmap", "named_call"))
"""Whose argument is a function that was compiled, and no part of a network."""
_PLUMBING = re.compile(
    r"while|body|cond|scan|branch_\d+_fun|closed_call|core_call|remat2?|checkpoint|rematted_computation|pjit|shard_map"
    r"|custom_[jv][vj]p_call(?:_jaxpr)?|body_jaxpr|cond_jaxpr|gradient_tape|gradients|StatefulPartitionedCall(?:_\d+)?"
)


@lru_cache(maxsize=1 << 13)
def layer_of(path: str) -> tuple[str, Direction | None]:
    """(layer, direction) of an op; empty for one that is in no named part. The last component is the op itself."""
    if len(path) > _LONGEST:
        return "", None
    layers: list[str] = []
    direction: Direction | None = None
    *scopes, _ = _components(path)
    if scopes[:1] in (["gradient_tape"], ["gradients"]):
        direction = "backward"
    for scope in scopes:
        for _ in range(_DEEPEST):
            wrapped = _WRAPPED.fullmatch(scope)
            if wrapped is None:
                break
            word, scope = wrapped[1], wrapped[2]
            if word in _PROGRAMS:
                scope = ""
            elif word == "transpose":
                direction = "backward"
            elif word == "jvp" and direction is None:
                direction = "forward"
        layers += [part for part in _components(scope) if part and _PLUMBING.fullmatch(part) is None]
    return "/".join(layers), direction if layers else None


def _components(path: str) -> list[str]:
    """What slashes part, those in parentheses apart."""
    if "(" not in path:
        return path.split("/")
    found, begin, depth = [], 0, 0
    for at, letter in enumerate(path):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth = max(0, depth - 1)
        elif letter == "/" and not depth:
            found.append(path[begin:at])
            begin = at + 1
    return [*found, path[begin:]]
