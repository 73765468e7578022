"""Whether a command is the one that an entry's call printed, and what it adds to the entry's problem."""

from __future__ import annotations

import msgspec

from mio2trace.model.miopen import Command
from mio2trace.ops.command import tag_direction
from mio2trace.ops.driver_options import first_word
from mio2trace.ops.families.conv import ConvProblem
from mio2trace.ops.families.elementwise import OpTensorProblem, SoftmaxProblem
from mio2trace.ops.families.norm import BnormProblem, LrnProblem
from mio2trace.ops.families.pool import PoolProblem
from mio2trace.ops.families.rnn import RnnProblem
from mio2trace.ops.log.draft import Build
from mio2trace.ops.problem import Problem
from mio2trace.ops.values import Shape

_TENSOR_OPS = frozenset(("optensor", "settensor", "scaletensor", "transformtensor"))
_WORDS = ("conv", "pool", "bnorm", "activ", "softmax", "lrn", "rnn", "tensorop", "reduce", "dropout", "ctc")


def primitive_of(text: str) -> str:
    """The primitive of a command, by its base word."""
    word = first_word(text)
    name = next((name for name in _WORDS if word.startswith(name)), word or "command")
    return {"tensorop": "optensor", "CBAInfer": "fusion"}.get(name, name)


def belongs(build: Build, command: Command, told: Problem | None) -> bool:
    """Whether ``command``, of the problem ``told``, is the one that the call printed."""
    mine, primitive, direction = build.problem, build.primitive, build.direction
    if told is None:
        return primitive_of(command.text) == primitive
    if "Find" in command.tag and build.phase != "find":
        return False
    if told.primitive in _TENSOR_OPS and primitive in _TENSOR_OPS:
        return isinstance(told, OpTensorProblem) and (
            not isinstance(mine, OpTensorProblem) or _padded(mine.a) == told.a or _padded(mine.output) == told.a
        )
    if told.primitive != primitive:
        return False
    if mine is None:
        return True
    api_direction = tag_direction(command.tag) if command.tag.startswith("miopen") else None
    if None not in (told.direction, direction) and told.direction != direction:
        return False
    if api_direction is not None and direction is not None and api_direction != direction:
        return False
    return same_shapes(mine, told)


def _padded(shape: Shape) -> Shape:
    return (*shape, 1, 1, 1, 1)[:4] if len(shape) < 4 else shape


def same_shapes(mine: Problem, theirs: Problem) -> bool:
    """Whether two statements can be of one problem, as far as both tell."""
    if not mine.input or not theirs.input or isinstance(theirs, RnnProblem):
        return True
    if _padded(mine.input) != _padded(theirs.input):
        return False
    return not (isinstance(mine, ConvProblem) and isinstance(theirs, ConvProblem)) or mine.w[2:] == theirs.w[2:]


def merged(mine: Problem | None, told: Problem | None) -> Problem | None:
    """The entry's problem with what only the command tells."""
    if told is None or mine is None:
        return mine if told is None else told
    replace = msgspec.structs.replace
    if isinstance(mine, ConvProblem) and isinstance(told, ConvProblem):
        return replace(mine, solver_id=told.solver_id)
    if isinstance(mine, PoolProblem) and isinstance(told, PoolProblem):
        return replace(mine, index_mode=told.index_mode)
    if isinstance(mine, OpTensorProblem) and isinstance(told, OpTensorProblem):
        return replace(mine, scaling=told.scaling)
    if isinstance(mine, SoftmaxProblem) and isinstance(told, SoftmaxProblem):
        return replace(mine, alpha=told.alpha, beta=told.beta)
    if isinstance(mine, BnormProblem) and isinstance(told, BnormProblem):
        return replace(mine, scale_dtype=told.scale_dtype, activation=told.activation)
    if isinstance(mine, LrnProblem) and isinstance(told, LrnProblem) and not mine.window:
        return told
    if isinstance(mine, RnnProblem) and isinstance(told, RnnProblem):
        return replace(told, w=mine.w)
    return mine


def immediate(problem: ConvProblem) -> ConvProblem:
    """As its command shows it when the call names a solution: ``-S 0``."""
    return msgspec.structs.replace(problem, solver_id=0)
