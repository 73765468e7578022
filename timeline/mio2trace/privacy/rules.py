"""What is private by its form: patterns, and what stands in its place."""

from __future__ import annotations

import re

from mio2trace.privacy.fields import Sort

KINDS = ("paths", "hosts", "users", "pointers", "environment", "secrets")
"""What ``--keep`` may name."""

_PART = r"""[^\s/\\"'<>|;,:()=\[\]{}*?]+"""
_MORE = rf"(?:[/\\]+{_PART})*[/\\]*(?: (?!-)[^\s/\\\"'<>|;,:()=]+(?=[/\\])(?:[/\\]+{_PART})+)*"
_BEFORE = r"""(?:(?<=-[ILBFo])|(?<![\w.)\]}/\\-]))"""
_ROOTS = (
    "home|Users|root|mnt|media|tmp|var|opt|usr|etc|scratch|nfs|net|srv|proc|sys|dev|run|lustre|gpfs|export|workspace"
    r"|work|data\d*|vol\w*|Volumes|private|nobackup|project\w*|local|boot|lib\w*|s?bin|app|github|builds?|jenkins"
)
_HOME_OR_DRIVE = (
    rf"~[\w.-]*[/\\](?:{_PART}{_MORE})?|(?<![A-Za-z0-9])[A-Za-z]:[/\\]+(?:{_PART}{_MORE})?|\\\\{_PART}{_MORE}"
)
_WITHIN = rf"(?<=[./])/(?:{_ROOTS})/{_PART}{_MORE}"
"""In ``x//home/me/y`` and ``../../home/me/y``."""
_LAYER_PATH = re.compile(rf"{_BEFORE}(?:/(?:{_ROOTS})/{_PART}{_MORE}|{_HOME_OR_DRIVE})|{_WITHIN}")
_PATH = re.compile(
    rf"{_BEFORE}(?:/{_PART}/(?:{_PART}{_MORE})?|/(?:{_ROOTS})(?!\w)|{_HOME_OR_DRIVE})|^/{_PART}$|{_WITHIN}"
)
_URL = re.compile(r"(?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>]+")
_USER_AT_HOST = re.compile(r"(?<![\w?@.+-])[\w.+-]+@[A-Za-z][\w.-]*")
_LABEL = r"(?:[A-Za-z0-9](?:[\w-]*[A-Za-z0-9])?\.)"
_HOST = re.compile(
    rf"(?<![\w./-])(?:{_LABEL}+(?:com|org|net|edu|gov|mil|local|lan|internal|localdomain|intranet|corp|example)"
    rf"|{_LABEL}{{2,}}(?:de|fr|uk|ch|cn|jp|ru|eu|io))(?![\w.(]|\.\w)"
    r"|(?<![\w.])(?:[1-9]\d|1\d\d|2[0-4]\d|25[0-5])(?:\.(?:\d{1,2}|1\d\d|2[0-4]\d|25[0-5])){3}(?![\w.])"
)
_POINTER = re.compile(r"(?<![0-9A-Za-z])0[xX][0-9a-fA-F]{5,16}(?![0-9A-Za-z])")
_BARE_POINTER = re.compile(r"(?<![0-9A-Za-z])(?=[0-9A-F]{16}(?![0-9A-Za-z]))(?:\d+[A-F]|[A-F]+\d)[0-9A-F]+")
_VALUE = r"""(?:'[^']*'|"[^"]*"|\S*)"""
_ENVIRONMENT = re.compile(
    rf"(?<![\w-])(?:[A-Z][A-Z0-9]*_[A-Z0-9_]*|PATH|HOME|USER|LOGNAME|HOSTNAME|HOST|PWD|SHELL|DISPLAY|LANG|TERM|MAIL)"
    rf"={_VALUE}"
)
_SENSITIVE = (
    r"[\w-]{0,40}(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
    r"[\w-]{0,40}"
)
_SECRET = re.compile(
    rf"(?<![\w-])(?:{_SENSITIVE}(?:\s*=\s*|:\s+)|--?{_SENSITIVE}\s+|authorization:\s*(?:\w+\s+)?){_VALUE}"
    r"|(?<!\w)(?:gh[pousr]_\w{16,}|AKIA[0-9A-Z]{12,}|xox[a-z]-[\w-]{8,}|sk-[\w-]{16,})",
    re.IGNORECASE,
)
# From the beginning of a word on: where nothing follows its first ``eyJ``, nothing follows the others
_TOKEN_IN_PARTS = re.compile(
    r"(?<![\w-])((?>[\w-]*?(?<!\w)(?=eyJ)))eyJ[\w-]{8,}+\.[\w-]++\.[\w-]*+",
    re.IGNORECASE,
)
_MAYBE_SECRET = (
    *("pass", "secret", "token", "_key", "-key", "apikey", "sskey", "tekey", "credential", "authoriz"),
    *("gho_", "ghp_", "ghu_", "ghs_", "ghr_", "akia", "xox", "sk-", "eyj"),
)
"""One of them is in every secret, in small letters: nearly all texts are done with them alone."""


def without_private(text: str, sort: Sort, cut: frozenset[str]) -> str:
    """``text`` without what is private of the kinds in ``cut``; the same object when there is nothing."""
    if "secrets" in cut:
        small = text.lower()
        for mark in _MAYBE_SECRET:
            if mark in small:
                text = _TOKEN_IN_PARTS.sub(r"\1(secret)", _SECRET.sub("(secret)", text))
                break
    if "environment" in cut and "=" in text:
        text = _ENVIRONMENT.sub("(environment)", text)
    if "hosts" in cut and "://" in text:
        text = _URL.sub("(url)", text)
    if "@" in text and cut & {"users", "hosts"}:
        text = _USER_AT_HOST.sub("(user)", text)
    if "paths" in cut and ("/" in text or "\\" in text):
        text = (_LAYER_PATH if sort == "layer" else _PATH).sub("(path)", text)
    if "pointers" in cut:
        if "0x" in text or "0X" in text:
            text = _POINTER.sub("(pointer)", text)
        text = _BARE_POINTER.sub("(pointer)", text)
    if "hosts" in cut and "." in text:
        text = _HOST.sub("(host)", text)
    return text
