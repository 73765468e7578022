"""Short names of kernels that differ wherever the full names differ: for lists and for the slices of a trace."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from os.path import commonprefix

from mio2trace.kernels.names import normalise
from mio2trace.patterns import late

_TENSILE = late(r"Cijk_(?P<layout>[A-Z][a-z]{3}_[A-Z][a-z]{3})_(?P<rest>.*)", re.ASCII)
_TYPES = late(r"[A-Z0-9]{1,6}(?:_[BHS]+)*(?=_|$)", re.ASCII)
_TILE = late(r"MT\d+x\d+x\d+", re.ASCII)
_WORD = late(r"[A-Za-z_]\w*", re.ASCII)
_WRAPPERS = ("elementwise_kernel", "reduce_kernel", "multi_tensor_apply_kernel")
_FUNCTOR = late(
    r"\w{2,}Ops?|launch_\w+|\w+_kernel(?:_cuda|_impl)?|\w+_cuda(?:_kernel|_out)?|\w+KernelImpl|\w+_copy",
    re.ASCII,
)
_PASSED_ON = late(r"gpu_kernel_\w+|[AB]UnaryFunctor|BinaryFunctor|ReduceOp|func_wrapper_t", re.ASCII)
"""Kernels that apply a functor and are named after it."""
_NOISE = late(r"CUDAFunctor(?:OnSelf)?_|_kernel_cuda$|_cuda_kernel$|_kernel_impl$|_kernel$", re.ASCII)
_LENGTH = late(r"(?<!\d)\d{1,2}(?=[A-Za-z_])", re.ASCII)
_ENTRIES = ("kentry", "Kernel", "Kernel2", "device_kernel")
"""The entry points of all kernels of ck_tile and of CUTLASS: the template argument names the kernel."""
_CLASS = late(r"(?:^|[<,] *)(?:[A-Za-z_]\w*::)*(?P<name>[A-Za-z_]\w*)(?=[<,> ]|$)", re.ASCII)
_VALUES = ("true", "false", "int", "void")
_LONGEST = 2000
_COMMON = 14
"""Characters that stay at the beginning if the middle of a name is left out."""
_LEAST_DIFFERENCE = 14
"""Characters from the place where names with equal short forms differ."""
_WORD_SHOWN = 12
"""Characters of a word that are shown before the difference."""
SLICE_NAME = 64
"""Characters of a kernel's name on its slice; the arguments have the whole name."""


def short_kernel(name: str) -> str:
    """Return the part of a name that distinguishes it inside its library: type and macro tile for Tensile, the functor
    for PyTorch."""
    plain = normalise(name)
    found = _TENSILE.match(plain)
    if found is not None:
        types, tile = _TYPES.match(found["rest"]), _TILE.search(found["rest"])
        parts = ["Cijk", found["layout"], types[0] if types else "", tile[0] if tile else ""]
        return " ".join(filter(None, parts))
    inner = ""
    if any(wrapper in plain for wrapper in _WRAPPERS):
        inner = _functor(name.partition("<")[2][:_LONGEST])
    elif plain in _ENTRIES:
        return _class(name[:_LONGEST], plain) or plain
    return f"{inner} ({plain})" if inner else plain


def _class(name: str, entry: str) -> str:
    """Return the class that an entry point runs; empty if the name does not contain it."""
    _, opened, arguments = name.partition(f"{entry}<")
    if opened:
        words: Iterator[str] = (found["name"] for found in _CLASS.finditer(arguments))
    else:
        words = (word for word in _mangled(name.partition(entry)[2]) if len(word) > len("tuple"))
    return next((word for word in words if word not in _VALUES and not word.startswith("gfx")), "")


def _functor(arguments: str) -> str:
    words = (word for word in _WORD.findall(arguments) if "unctor" in word or _FUNCTOR.fullmatch(word))
    functor = next((word for word in words if not _PASSED_ON.fullmatch(word)), "")
    return _NOISE.sub("", functor) or functor


def _mangled(text: str) -> Iterator[str]:
    """Return the names in a mangled name: each follows its length."""
    at = 0
    while (found := _LENGTH.search(text, at)) is not None:
        at = found.end() + int(found[0])
        yield text[found.end() : at]


def slice_names(names: Collection[str]) -> dict[str, str]:
    """Return for each full name of a kernel the name of its slices: short and distinct."""
    full = sorted(names)
    short = [short_kernel(name) or "unnamed kernel" for name in full]
    return dict(zip(full, distinct(full, short, SLICE_NAME), strict=True))


def distinct(names: Sequence[str], shown: Sequence[str], width: int) -> list[str]:
    """Return ``shown``, short forms of ``names``, cut to ``width``; equal short forms show the part that differs."""
    cut = [_end_cut(text, width) for text in shown]
    for _ in range(2):  # names that differ in several places may still look equal
        for group in _equal(names, cut, width):
            at = len(commonprefix([names[one] for one in group]))  # noqa: RUF071 - characters are meant
            for one in group:
                if cut[one] != names[one]:
                    cut[one] = _middle_cut(names[one], shown[one], at, width)
    taken = set(cut)
    numbered: dict[str, dict[str, str]] = {}
    for one, text in enumerate(cut):
        texts = numbered.setdefault(text, {})
        if names[one] not in texts:
            texts[names[one]] = text if not texts else _numbered(text, len(texts) + 1, width, taken)
            taken.add(texts[names[one]])
        cut[one] = texts[names[one]]
    return cut


def _numbered(text: str, number: int, width: int, taken: Collection[str]) -> str:
    """Return the text with the first number from ``number`` on that makes it distinct from ``taken``."""
    while (made := f"{_end_cut(text, width - len(f' #{number}'))} #{number}") in taken:
        number += 1
    return made


def _equal(names: Sequence[str], cut: Sequence[str], width: int) -> Iterator[list[int]]:
    """Return positions that look equal although their names differ: also a name whose end is cut off, and a name with
    the same beginning."""
    ends = {text for text in cut if len(text) == width and text.endswith("...")}
    groups: dict[str, list[int]] = {}
    for at, text in enumerate(cut):
        end = f"{text[: width - 3]}..."
        groups.setdefault(end if end in ends else text, []).append(at)
    return (group for group in groups.values() if len({names[one] for one in group}) > 1)


def _end_cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _middle_cut(name: str, shown: str, at: int, width: int) -> str:
    """Return the short form or the beginning, and the part from ``at`` on, where the name differs from others."""
    if shown != name and not name.startswith(shown[:_COMMON]):
        head = _end_cut(shown, width - _LEAST_DIFFERENCE - 3)
        begin = max(name.rfind(mark, 0, at) for mark in "_ <,:(") + 1
        return f"{head} ..{_end_cut(name[begin if at - begin <= _WORD_SHOWN else at :], width - len(head) - 3)}"
    room = width - _COMMON - 3
    begin = max(name.rfind(mark, 0, at) for mark in "_ <,:(") + 1
    if begin <= _COMMON and at < width - 3:
        return _end_cut(name, width)
    if begin <= _COMMON or at - begin > room - 4:  # the word is too long to be shown up to the difference
        begin = max(at - room // 2, _COMMON)
    return f"{name[:_COMMON]}...{_end_cut(name[begin:], room)}"
