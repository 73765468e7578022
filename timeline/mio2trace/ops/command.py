"""MIOpenDriver command lines (miopen-log.md 7): from text to problem, from problem to text, and the form of a log's
version.

Each word of a command is checked against the base words and options that the families list: once when a log contains
it, and again when a line is offered to a shell. A word that is not a known option with a plain value is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from functools import cache, lru_cache

from mio2trace.model.miopen import OperationDirection
from mio2trace.ops.families import OPTIONS, WORDS
from mio2trace.ops.families.gemm import Blas, Library
from mio2trace.ops.operation import OperationFacts, of_problem
from mio2trace.ops.problem import ANY, FORMS, PATH, CommandError, Form, Line, Problem, direction_in
from mio2trace.patterns import late

_LONGEST = 4096
"""The most characters of a command. The longest command of MIOpen, an RNN's with the length of each sequence, has
fewer."""

_pattern = cache(re.compile)
_WITHOUT_OFFER = (PATH, ANY)
"""Values that a log may state but that a command never offers."""

LONG = {
    "batchsize": "n", "in_channels": "c", "in_h": "H", "in_w": "W", "out_channels": "k", "fil_h": "y", "fil_w": "x",
    "pad_h": "p", "pad_w": "q", "conv_stride_h": "u", "conv_stride_w": "v", "dilation_h": "l", "dilation_w": "j",
    "mode": "m", "group_count": "g", "alpha": "A", "beta": "B", "gamma": "G", "algorithm": "a", "back": "b",
    "time": "t", "verify": "V", "iter": "i", "wall": "w", "search": "s", "printconv": "P", "print": "P",
    "pad_mode": "z", "pad_val": "r", "dump_output": "o", "verification_cache": "C",
}  # fmt: skip
"""The short names of logs by long name (miopen-log.md 7.1); other names stay unchanged. Some words have names of their
own (`Word.names`)."""

_FORW_AS_IT_IS = ("bnorm", "activ", "CBAInfer")
"""Words whose ``-F`` has another meaning, or whose logs have ``--forw``."""

_WORD = late(r"[A-Za-z][A-Za-z0-9_]{0,31}")
_OPTION = late(r"--?[A-Za-z][A-Za-z0-9_]{0,31}|-[12]")  # Adam's -1 and -2 are its beta1 and beta2


class NotPlainError(ValueError):
    """A command contains a word that is no known option, or a value that is not plain; the message names the place."""


class CutError(NotPlainError):
    """A command ends before the value of its last option."""


_TYPES = (("bfp16fp32", "bfloat16"), ("fp16fp32", "half"), ("bfp16", "bfloat16"), ("fp16", "half"), ("int8", "int8"),
          ("fp32", "float"), ("fp64", "double"))  # fmt: skip
_NEWEST_BNORM = late(r"bnorm.* -r 1 -s 1|bnorm.* -b 1 -s 1 --layout")
_SECOND_OR_FOURTH = late(r" -F [24]\b")


@lru_cache(maxsize=1 << 13)
def _words(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return base word and options; see `split`."""
    if len(text) > _LONGEST:
        raise NotPlainError(f"longer than {_LONGEST} characters")
    words = text.split()
    word = words[0] if words else ""
    if not _WORD.fullmatch(word):
        raise NotPlainError("the base word is none")
    name = base(word)[0]
    if name not in WORDS:
        raise NotPlainError("the base word is not known")
    kinds = OPTIONS.get(name)
    options: dict[str, str] = {}
    at = 1
    while at < len(words):
        written, equals, value = words[at].partition("=")
        at += 1
        if not _OPTION.fullmatch(written):
            raise NotPlainError("a word that is no option")
        option = _short(written, word)
        kind = ANY if kinds is None else kinds.get(option)
        if kind is None:
            raise NotPlainError(f"the option {written} is not known")
        if not equals:
            if at == len(words):
                raise CutError(f"the value of {written} is missing")
            value = words[at]
            at += 1
        if not _pattern(kind).fullmatch(value):
            raise NotPlainError(f"the value of {written} is none")
        options[option] = value
    return word, tuple(options.items())


def split(text: str) -> tuple[str, dict[str, str]]:
    """Return the base word, and the options by their short names without dashes, in the order of the text.

    Raises `NotPlainError` for a text that is no driver command.
    """
    word, options = _words(text)
    return word, dict(options)


def _short(written: str, word: str) -> str:
    name = written.lstrip("-")
    names = WORDS[base(word)[0]].names
    if name in names:
        return names[name]
    if not written.startswith("--"):
        return name
    if name == "forw" and not word.startswith(_FORW_AS_IT_IS):
        return "F"
    return LONG.get(name, name)


def first_word(text: str) -> str:
    """Return the base word as a name; empty if the text does not begin with one."""
    found = _WORD.match(text.lstrip())
    return found[0] if found and text.lstrip()[found.end() :][:1] in ("", " ", "\t") else ""


def refusal(text: str) -> str:
    """Return the reason why a logged command is only shown as text; empty if it is plain, or ends too early."""
    try:
        split(text)
    except CutError:
        return ""
    except NotPlainError as reason:
        return str(reason)
    return ""


def base(word: str) -> tuple[str, str | None]:
    """Return base word and type: ``convfp16`` is conv of half; without a suffix the type is float."""
    for suffix, dtype in _TYPES:
        if word.endswith(suffix) and word != suffix:
            return word.removesuffix(suffix), dtype
    return word, "float"


@lru_cache(maxsize=1 << 13)
def parse(text: str, tag: str = "") -> Problem | None:
    """Return the problem that a command states; None if it is cut, has an unknown base word, or is not plain
    (`refusal`).

    ``tag`` (the printing function) gives the direction if the text has none: before 2.0; pooling before 2.3.
    """
    try:
        word, flags = split(text)
    except NotPlainError:
        return None
    name, dtype = base(word)
    row = WORDS.get(name)
    try:
        return None if row is None else row.read(Line(word, name, flags, dtype, tag, direction_in(tag)))
    except (KeyError, ValueError):  # an option that the problem needs is missing, or its value is invalid
        return None


def ways(text: str) -> tuple[OperationDirection, ...]:
    """Return the directions that the driver runs with a command that it, or a person, wrote; () if not several."""
    try:
        word, flags = split(text)
    except NotPlainError:
        return ()
    return Line(word, base(word)[0], flags, None, "", None).ways


def driver_line(problem: Problem, form: Form = "newest") -> str:
    """Return ``./bin/MIOpenDriver ...`` with only known options and plain values. Raises `CommandError`."""
    text = problem.command(form)
    try:
        word, options = split(text)
        kinds = OPTIONS.get(base(word)[0])
        if kinds is None:
            raise NotPlainError("the base word is not known")
    except NotPlainError as reason:
        raise CommandError(f"no plain driver command: {reason}") from None
    for name in options:
        if kinds[name] in _WITHOUT_OFFER:
            raise CommandError(f"no plain driver command: the value of {name} is the log's own")
    return shlex.join(["./bin/MIOpenDriver", *text.split()])


def offered(problem: Problem, form: Form = "newest") -> tuple[str | None, str]:
    """Return `driver_line` and an empty text; None and the reason if there is no line."""
    try:
        return driver_line(problem, form), ""
    except CommandError as error:
        return None, str(error)


def offered_bench(blas: Blas, library: Library = "hipblaslt") -> tuple[str | None, str]:
    """Return the line for a library's bench, in the same form as `offered`."""
    try:
        return blas.command(library), ""
    except CommandError as error:
        return None, str(error)


def facts_of(
    problem: Problem, given: tuple[str | None, str], *, api: str = "", primitive: str = "", dtype_by: str | None = None
) -> OperationFacts:
    """Return the facts that follow from a problem. ``given``: its command, or the reason why there is none."""
    (command, reason), doubt = given, problem.check()
    if command is not None and problem.blas is not None and problem.blas.copied:
        doubt = doubt or "the command assumes row-major operands: the library gets copies, or no strides were recorded"
    facts = OperationFacts(
        api=api, primitive=primitive, dtype_by=dtype_by, command=command, command_reason=reason,
        doubts=(doubt,) if doubt else (),
    )  # fmt: skip
    return of_problem(problem, facts)


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
    """Return the newest form that any command of a log, (tag, text), shows; None without commands."""
    shown = (next((form for form, test in _MARKS if test(tag, text)), FORMS[0]) for tag, text in commands)
    return max(shown, key=FORMS.index, default=None)
