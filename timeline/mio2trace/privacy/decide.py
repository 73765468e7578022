"""Decide whether a match is private, where an expression alone cannot decide in linear time.

Each function takes a match and returns its replacement: the text itself if it is not private.
"""

from __future__ import annotations

import re
from typing import Final

from mio2trace.patterns import late

_DOMAINS = frozenset(
    re.findall(
        r"\w+",
        "com org net edu gov mil local lan internal localdomain intranet intra corp example home arpa onion",
    )
)
"""A name that ends in one of these is a host's, even with only one label before it."""
_COUNTRIES = frozenset(
    ("de", "fr", "uk", "ch", "cn", "jp", "ru", "eu", "io", "kr", "tw", "dk", "cz", "br", "nz", "hk", "cloud")
)
"""These need two labels before them. None of them ends names of layers: ``block.attention.in``, ``blocks.0.se``,
``layer3.nl``."""
_OF_HOMES = frozenset({"local", "lan", "internal", "localdomain", "intranet", "corp"})
_ENDINGS = frozenset({"log", "txt", "json", "out", "err", "gz", "csv"})
_ROUTED = late(r"[23][0-9a-f]{3}|f[cd](?=\w?\d)[0-9a-f]{2}|fe[89ab][0-9a-f]|ff0[0-9a-f]")
_ADDRESS_BEGINS = ("7e", "7f", "55", "56", "ffff", "aaaa", "0000")
"""The addresses at which 64-bit systems place what a program allocates and maps."""
_PADDING = ("0000", "ffff")
_WORD_LETTERS = late(r"[a-z]{3,}")
_LAST_WORD = late(r"(?<![\w-])[\w-]++\Z")
_DIGITS = late(r"\d+")
_LETTERS = late(r"[A-Za-z]")
_SIZES = 8
_SHORTLY = 60
_OF_REPLICAS = late(r"[bcdfghjklmnpqrstvwxz2456789]{8,10}")
_OF_A_POD = late(r"[bcdfghjklmnpqrstvwxz2456789]{5}")
"""Letters of generated names: no vowels, and no digits that look like vowels."""
_NOT_HEX = late(r"[^0-9a-f]+")


def host(match: re.Match[str]) -> str:
    """``node7.lan``, ``gpu7.site.example.com``; not ``torch.nn.functional``, ``attention.in``, ``2.9.0.1``."""
    labels = match[0].lower().split(".")
    if labels[-1] in _ENDINGS:
        labels.pop()
    if len(labels) < 2 or all(label.isdigit() for label in labels):
        return match[0]
    end = labels[-1]
    if match.start() and match.string[match.start() - 1] == "/" and end not in _OF_HOMES:
        return match[0]
    if end in _DOMAINS or (end in _COUNTRIES and len(labels) > 2) or labels[-2:] == ["fritz", "box"]:
        return "(host)"
    return match[0]


def ipv4(match: re.Match[str]) -> str:
    """A first number below 10 is a version (``2.9.0.1``), unless a port or a mask follows or two parts have three
    digits."""
    address, port, _ = match[0].partition(":") if ":" in match[0] else match[0].partition("/")
    parts = [int(part) for part in address.split(".")]
    if max(parts) > 255:
        return match[0]
    return "(host)" if parts[0] >= 10 or port or sum(part >= 100 for part in parts) >= 2 else match[0]


def ipv6(match: re.Match[str]) -> str:
    """All eight groups, or ``::`` after a prefix that is routed, unique local, link local or multicast.

    Not ``ab::cd`` as in C++, and no times of day.
    """
    address = match[0].lower().partition("%")[0].partition("/")[0]
    colon = ":" if address.endswith(":") and not address.endswith("::") else ""  # "... is at ADDRESS: 5 ms"
    address = address.removesuffix(colon)
    groups = address.split(":")
    whole = len(groups) == 8 and "" not in groups and max(map(len, groups)) == 4
    short = address.count("::") == 1 and ":::" not in address and _ROUTED.fullmatch(groups[0]) is not None
    return f"(host){colon}" if whole or short else match[0]


def pointer(match: re.Match[str]) -> str:
    """``0x7fca4a00caca``, ``0x7f:ca:4a:00``, ``0x7fff_1234_5678``; not ``0x64_128``, a size."""
    digits = _NOT_HEX.sub("", match[0][2:].lower())
    return "(pointer)" if len(digits) == len(match[0]) - 2 or len(digits) >= 8 else match[0]


def bare_pointer(match: re.Match[str]) -> str:
    """12 or 16 digits with a letter and a decimal digit, in the range of addresses; or 16 digits with capital letters.

    Only a whole word: hashes inside of kernel names stay.
    """
    digits = _NOT_HEX.sub("", match[0].lower())
    if digits.isdigit() or digits.isalpha():
        return match[0]
    padded = len(digits) == 16
    if digits.startswith(_PADDING if padded else _ADDRESS_BEGINS) or (padded and match[0].isupper()):
        return "(pointer)"
    return match[0]


def serial(match: re.Match[str]) -> str:
    """Keep the word, remove the number."""
    return _LAST_WORD.split(match[0])[0] + "(device id)"


def telephone(match: re.Match[str]) -> str:
    """Eight to fifteen digits, but no sizes: ``256-512-1024``, ``1-512-512-1024`` (batch 1, or multiples of four)."""
    numbers = _DIGITS.findall(match[0])
    count = sum(map(len, numbers))
    sizes = not match[0].startswith(("+", "(", "0")) and not any(
        int(number) % 4 for number in numbers[numbers[0] == "1" :]
    )
    return match[0] if sizes or not 8 <= count <= 15 else "(telephone)"


def telephone_after_its_word(match: re.Match[str]) -> str:
    """Keep the word, remove the number."""
    return f"{match['word']}(telephone)"


def user(match: re.Match[str]) -> str:
    """Keep the word, and a value that names nobody: ``user=root``, ``user: unknown``."""
    return match[0] if match["name"].lower() in OF_NOBODY else f"{match['word']}(user)"


def machine(match: re.Match[str]) -> str:
    """Keep the word, and a value that names no machine: ``host: localhost``, ``host: float``."""
    return match[0] if match["name"].lower() in OF_NOBODY else f"{match['word']}(host)"


def key_of_a_service(match: re.Match[str]) -> str:
    """A hash of Git's length is a key of Weights & Biases if their name precedes it closely."""
    before = match.string[max(0, match.start() - _SHORTLY) : match.start()].lower()
    return "(secret)" if "wandb" in before or "w&b" in before else match[0]


def pod(match: re.Match[str]) -> str:
    """``train-7f9c8d6b5-x2k4z``: the last two parts come from Kubernetes and consist of letters and digits that spell
    no word."""
    *_, made, last = match[0].split("-")
    if _OF_REPLICAS.fullmatch(made) and _OF_A_POD.fullmatch(last) and _DIGITS.search(made) and _LETTERS.search(made):
        return "(host)"
    return match[0]


def random(match: re.Match[str]) -> str:
    """Letters of both cases and digits without words: a key, a signature, a line of base64.

    Names of layers, solvers and kernels are made of words or have many ``_`` or ``/``; mangled names begin with ``_``;
    hashes have small letters only; sizes with ``x`` between them are a library's name of a problem
    (``3x224x224x7x7x64x112x112x16xNCHWxFP32x3x3x2x2x1x1x1xF``).
    """
    text = match[0].rstrip("=")
    if text.startswith("_") or text.islower() or text.isupper() or text.isalpha():
        return match[0]
    parts = text.split("x")
    if len(parts) >= _SIZES and sum(map(str.isdigit, parts)) * 2 > len(parts):
        return match[0]
    if sum(map(text.count, "_/-")) * 10 > len(text) + 10:
        return match[0]
    letters = len(_LETTERS.findall(text))
    in_words = sum(map(len, _WORD_LETTERS.findall(text)))
    return "(secret)" if letters * 2 > len(text) and in_words * 10 < letters * 4 else match[0]


# -- Words in the places of names that name nobody ---------------------------------------------------------------------

OF_NOBODY: Final = frozenset(
    """
    root user users ubuntu debian centos fedora admin administrator test tests work home build builds builder dev docker
    jenkins runner ci caffe miopen rocm rocmuser amd gpu host localhost local share shared public src bin opt data input
    output loss prob label conv pool relu norm bench benchmark guest default ctuning ck anaconda conda forward backward
    kernel layer iteration unknown none null nil nan true false yes no any all anonymous nobody system device cpu memory
    mem float double half int char void bool auto empty invalid error name and or not is the an to of in on by for with
    has was linux windows x86_64 aarch64
    """.split()  # noqa: SIM905 (one word a line is too long to read)
)
"""Common accounts and machines, and words of our own: replacing them would only make names unreadable."""
