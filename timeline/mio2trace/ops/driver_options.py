"""The allowed words of a MIOpenDriver command: base words, and the options that the families list.

The words of a command are checked one by one, when a log has them and again when a line is offered to a shell. A word
that is no known option with a plain value is refused.
"""

from __future__ import annotations

import re
import shlex
from functools import cache, lru_cache

from mio2trace.ops.family import ANY, PATH
from mio2trace.ops.problem import CommandError, Form, Problem
from mio2trace.ops.table import OPTIONS
from mio2trace.patterns import late

_LONGEST = 4096
"""Characters of a command; the longest that MIOpen prints, an RNN's with the length of each sequence, has fewer."""

_pattern = cache(re.compile)
"""Of a kind of values; there are many, and few of them in a log."""
_SUFFIXES = ("bfp16fp32", "fp16fp32", "bfp16", "fp16", "fp32", "fp64", "int8", "int", "fp", "")
_WITHOUT_OFFER = (PATH, ANY)
"""Values that a log may state and that we never offer."""

LONG = {
    "batchsize": "n", "in_channels": "c", "in_h": "H", "in_w": "W", "out_channels": "k", "fil_h": "y", "fil_w": "x",
    "pad_h": "p", "pad_w": "q", "conv_stride_h": "u", "conv_stride_w": "v", "dilation_h": "l", "dilation_w": "j",
    "mode": "m", "group_count": "g", "fusion_mode": "F", "win_h": "y", "win_w": "x", "win_d": "Z", "pool_stride_h": "v",
    "pool_stride_w": "u", "pool_stride_d": "s", "back": "b", "save": "s", "run": "r",
}  # fmt: skip
"""Long names (miopen-log.md 7.1) to the short names of logs; others stay."""

_FORW_AS_IT_IS = ("bnorm", "activ", "CBAInfer")
"""Words whose ``-F`` is another, or of which logs have ``--forw``."""

_WORD = late(r"[A-Za-z][A-Za-z0-9_]{0,31}")
_OPTION = late(r"--?[A-Za-z][A-Za-z0-9_]{0,31}")


class NotPlainError(ValueError):
    """A command holds what is no known option or no plain value: the text says where."""


class CutError(NotPlainError):
    """A command ends before the value of its last option."""


def base_of(word: str) -> str:
    """``conv`` of ``convfp16``, the word itself when the driver has no such base word."""
    for suffix in _SUFFIXES:
        name = word.removesuffix(suffix)
        if word.endswith(suffix) and name in OPTIONS:
            return name
    return word


@lru_cache(maxsize=1 << 13)
def split(text: str, free: bool = False) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Base word and options by name without dashes, in the text's order; long names become short ones.

    ``free``: the word is one that we never offer, whose options are not known one by one. Raises `NotPlainError`.
    """
    if len(text) > _LONGEST:
        raise NotPlainError(f"longer than {_LONGEST} characters")
    words = text.split()
    word = words[0] if words else ""
    if not _WORD.fullmatch(word):
        raise NotPlainError("the base word is none")
    kinds = OPTIONS.get(base_of(word))
    if kinds is None and not free:
        raise NotPlainError("the base word is not known")
    options: dict[str, str] = {}
    at = 1
    while at < len(words):
        written, equals, value = words[at].partition("=")
        at += 1
        if not _OPTION.fullmatch(written):
            raise NotPlainError("a word that is no option")
        name = _short(written, word)
        kind = ANY if kinds is None else kinds.get(name)
        if kind is None:
            raise NotPlainError(f"the option {written} is not known")
        if not equals:
            if at == len(words):
                raise CutError(f"the value of {written} is missing")
            value = words[at]
            at += 1
        if not _pattern(kind).fullmatch(value):
            raise NotPlainError(f"the value of {written} is none")
        options[name] = value
    return word, tuple(options.items())


def _short(written: str, word: str) -> str:
    name = written.lstrip("-")
    if not written.startswith("--"):
        return name
    if name == "forw" and not word.startswith(_FORW_AS_IT_IS):
        return "F"
    return LONG.get(name, name)


def first_word(text: str) -> str:
    """The base word, for a name; empty when the text begins with none."""
    found = _WORD.match(text.lstrip())
    return found[0] if found and text.lstrip()[found.end() :][:1] in ("", " ", "\t") else ""


def driver_line(problem: Problem, form: Form = "newest") -> str:
    """``./bin/MIOpenDriver ...`` for a shell, of known options and plain values only. Raises `CommandError`."""
    text = problem.command(form)
    try:
        word, options = split(text)
    except NotPlainError as reason:
        raise CommandError(f"no plain driver command: {reason}") from None
    kinds = OPTIONS[base_of(word)]
    for name, _ in options:
        if kinds[name] in _WITHOUT_OFFER:
            raise CommandError(f"no plain driver command: the value of {name} is the log's own")
    return shlex.join(["./bin/MIOpenDriver", *text.split()])
