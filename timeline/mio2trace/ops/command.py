"""MIOpenDriver command lines (miopen-log.md 7): text to problem, and which version's form a log has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from mio2trace.model.miopen import OperationDirection
from mio2trace.ops import driver_options
from mio2trace.ops.driver_options import CutError, NotPlainError
from mio2trace.ops.family import Line
from mio2trace.ops.problem import Form, Problem
from mio2trace.ops.table import WORDS
from mio2trace.patterns import late

_TYPES = (("bfp16fp32", "bfloat16"), ("fp16fp32", "half"), ("bfp16", "bfloat16"), ("fp16", "half"), ("int8", "int8"),
          ("fp32", "float"), ("fp64", "double"))  # fmt: skip
_NEWEST_BNORM = late(r"bnorm.* -r 1 -s 1|bnorm.* -b 1 -s 1 --layout")
_SECOND_OR_FOURTH = late(r" -F [24]\b")
_TAG_DIRECTION: tuple[tuple[str, OperationDirection], ...] = (
    ("BackwardWeights", "backward-weights"),
    ("BackwardBias", "backward-weights"),
    ("BackwardData", "backward-data"),
    ("Backward", "backward-data"),
    ("Forward", "forward"),
)


def split(text: str) -> tuple[str, dict[str, str]]:
    """Base word and flags by name without dashes, in the text's order; long names become short ones.

    Raises `NotPlainError` for what is no driver command, word by word.
    """
    word, flags = driver_options.split(text, _is_free(driver_options.first_word(text)))
    return word, dict(flags)


def _is_free(word: str) -> bool:
    row = WORDS.get(base(word)[0])
    return row is not None and row.options is None


def refusal(text: str) -> str:
    """Why a logged command is shown as text only; empty when it is a plain one, or stops too early."""
    try:
        split(text)
    except CutError:
        return ""
    except NotPlainError as reason:
        return str(reason)
    return ""


def base(word: str) -> tuple[str, str | None]:
    """Base word without its type, and the type: ``convfp16`` is conv of half; without suffix it is float."""
    for suffix, dtype in _TYPES:
        if word.endswith(suffix) and word != suffix:
            return word.removesuffix(suffix), dtype
    return word, "float"


def tag_direction(tag: str) -> OperationDirection | None:
    """The direction in the name of the function that printed the command."""
    return next((direction for part, direction in _TAG_DIRECTION if part in tag), None)


@lru_cache(maxsize=1 << 13)
def parse(text: str, tag: str = "") -> Problem | None:
    """The problem that a command states; None when it is cut, of an unknown base word or not plain (`refusal`).

    ``tag`` (the printing function) gives the direction where the text has none: before 2.0, pooling before 2.3.
    """
    try:
        word, flags = split(text)
    except NotPlainError:
        return None
    name, dtype = base(word)
    row = WORDS.get(name)
    return None if row is None else row.read(Line(word, name, flags, dtype, tag, tag_direction(tag)))


_MARKS: tuple[tuple[Form, Callable[[str, str], bool]], ...] = (
    ("newest", lambda tag, text: bool(_NEWEST_BNORM.match(text))),
    ("6.3", lambda tag, text: text.startswith("bnorm") and "--layout" in text),
    ("5.4", lambda tag, text: "--input " in text or tag == "LogCmdFindConvolution"),
    ("2.3", lambda tag, text: tag in ("Pooling_logging_cmd", "LogCmdBNorm", "LogCmdActivation", "LogCmdSoftmax")),
    ("2.1", lambda tag, text: tag == "LogCmdConvolution" and bool(_SECOND_OR_FOURTH.search(text))),
    ("2.0", lambda tag, text: tag.startswith("LogCmd") or " -F " in text),
    ("1.7", lambda tag, text: tag.startswith("miopen") and " -g " in text),
)


def form_of(commands: Iterable[tuple[str, str]]) -> Form | None:
    """The form that a log's commands, (tag, text) each, have: the newest that any of them shows; None without any."""
    best: int | None = None
    order = [form for form, _ in _MARKS]
    for tag, text in commands:
        mark = next((at for at, (_, test) in enumerate(_MARKS) if test(tag, text)), len(_MARKS))
        best = mark if best is None else min(best, mark)
    if best is None:
        return None
    return order[best] if best < len(order) else "1.2"
