"""What is private by its form: a table of rules, each with what stands in its place (docs/privacy.md).

Every expression is linear: what repeats is possessive or bounded, and a match begins only where a word does.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import NamedTuple

from mio2trace.patterns import late
from mio2trace.privacy import decide
from mio2trace.privacy.fields import Sort

KINDS = ("paths", "hosts", "users", "pointers", "environment", "secrets", "devices")
"""What ``--keep`` may name."""


class Rule(NamedTuple):
    """``form`` names it in the docs. ``kinds``: cut unless all of them are kept. ``sorts``: fields it applies to.

    One of ``marks`` (small letters) is in every text of this form, and one of ``shapes`` in what `_shapes` makes of it:
    which spares nearly all texts the expression. The empty one is in all.
    """

    form: str
    kinds: frozenset[str]
    marks: tuple[str, ...]
    shapes: tuple[str, ...]
    pattern: re.Pattern[str]
    becomes: str | Callable[[re.Match[str]], str]
    sorts: tuple[Sort, ...] = ("layer", "name", "text")


_COLONS = r":(?=(?:[0-9A-Fa-f]{0,4}:){3})[0-9A-Fa-f:]++(?:%\w++)?+"
"""An address of IPv6 that is a part of a path, or ends one: what is left of it would be none by its form."""
_CUT = r"\((?:telephone|device id)\)"
"""What stands in a path in place of what was cut before: the path goes on behind it."""
_PART = rf"""(?:[^\s/\\"'<>|;,:()=\[\]{{}}*?]++|{_COLONS}|:(?=\\)|{_CUT})++"""
_MORE = (
    rf"(?:[/\\]++{_PART})*+[/\\]*+"
    rf"(?: (?!-)[^\s/\\\"'<>|;,:()=]++(?=[/\\])(?:[/\\]++{_PART})++)*+"
)
_BEFORE = r"""(?:(?<=-[ILBFo])|(?<![\w.)\]}/\\-]))"""
_ROOTS = (
    "home|Users|root|mnt|media|tmp|var|opt|usr|etc|scratch|nfs|net|srv|proc|sys|dev|run|lustre|gpfs|export|workspace"
    r"|work|data\d*+|vol\w*+|Volumes|private|nobackup|project\w*+|local|boot|lib\w*+|s?bin|app|github|builds?|jenkins"
)
_HOME_OR_DRIVE = (
    rf"~[\w.-]*+[/\\](?:{_PART}{_MORE})?|(?<![A-Za-z0-9])[A-Za-z]:[/\\]++(?:{_PART}{_MORE})?|\\{{2,4}}+{_PART}{_MORE}"
    rf"|(?<!\S)\\{_PART}{_MORE}"
)
_WITHIN = rf"(?<=[./])/(?:{_ROOTS})/{_PART}{_MORE}"
"""In ``x//home/me/y`` and ``../../home/me/y``."""
_LAYER_PATH = rf"{_BEFORE}(?:/(?:{_ROOTS})/{_PART}{_MORE}|{_HOME_OR_DRIVE})|{_WITHIN}"
_PATH = rf"{_BEFORE}(?:/{_PART}/(?:{_PART}{_MORE})?|/(?:{_ROOTS})(?!\w)|{_HOME_OR_DRIVE})|^/{_PART}$|{_WITHIN}"
_VALUE = r"""(?:'[^']*+'|"[^"]*+"|\S*+)"""
_TELLING_WORD = (
    r"(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|(?<![A-Za-z])pwd"
    r"|credentials?)[\w-]{0,40}+"
)
_TOKENS = (
    r"gh[pousr]_\w{16,}+|github_pat_\w{16,}+|glpat-[\w-]{16,}+|hf_[A-Za-z0-9]{16,}+|npm_[A-Za-z0-9]{16,}+"
    r"|A(?:KIA|SIA)[A-Z0-9]{12,}+(?::[\w+/]++)?+|AIza[\w-]{16,}+|ya29\.[\w.-]{8,}+|GOCSPX-[\w-]{16,}+"
    r"|1//0[\w-]{16,}+|xox[a-z]-[\w-]{8,}+|xapp-[\w-]{16,}+|[sr]k-[\w-]{16,}+|[srp]k_(?:live|test)_\w{8,}+"
    r"|pypi-[\w-]{16,}+|dckr_pat_[\w-]{8,}+|hooks\.slack\.com/\S++|SG\.[\w-]{8,}+\.[\w-]{8,}+"
    r"|dop_v1_[0-9a-f]{24,}+|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{24,}+|sq0[a-z]{3}-[\w-]{16,}+|ATATT[\w-]{16,}+|glsa_\w{16,}+"
    r"|r8_[A-Za-z0-9]{30,}+|gsk_[A-Za-z0-9]{20,}+|hvs\.[\w-]{12,}+|AGE-SECRET-KEY-1[A-Z0-9]{12,}+|whsec_\w{12,}+"
    r"|tskey-[\w-]{12,}+|dapi[0-9a-f]{32}|eyJ[\w-]{8,}+(?:\.[\w-]*+)*+"
)
_PREFIXES = (
    "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- hf_ npm_ akia asia aiza ya29. gocspx- 1//0 xox xapp- sk- rk- k_live_ "
    "k_test_ pypi- dckr_pat_ hooks.slack sg. eyj dop_v1_ shpat_ shpca_ shppa_ shpss_ sq0 atatt "
    "glsa_ r8_ gsk_ hvs. age-secret-key- whsec_ tskey- dapi"
)
_ENVIRONMENT_WORDS = (
    "PATH|HOME|USER|LOGNAME|HOSTNAME|HOST|PWD|SHELL|DISPLAY|LANG|TERM|MAIL|USERNAME|USERPROFILE|USERDOMAIN"
    "|COMPUTERNAME|LOGONSERVER|APPDATA|TEMP|TMP"
)
_HEX = "[0-9A-Fa-f]"
_NO_HEX_BEFORE, _NO_HEX_AFTER = "(?<![0-9A-Za-z])", "(?![0-9A-Za-z])"
_SERIAL_WORD = (
    r"(?:serial(?:[ _-]?(?:number|num|no|nr))?|(?:machine|unique)[ _-]?id|asset[ _-]?tag|product[ _-]?uuid"
    r"|uuid|guid|imei|s/?n(?=:))"
)


def _rule(
    form: str,
    kinds: str,
    marks: str,
    pattern: str,
    becomes: str | Callable[[re.Match[str]], str],
    *,
    shapes: str = "",
    sorts: tuple[Sort, ...] = ("layer", "name", "text"),
    flags: re.RegexFlag = re.NOFLAG,
) -> Rule:
    return Rule(
        form,
        frozenset(kinds.split()),
        tuple(marks.split() or [""]),
        tuple(shapes.split("|")),
        late(pattern, flags),
        becomes,
        sorts,
    )


RULES: tuple[Rule, ...] = (
    _rule(
        "key block", "secrets", "-----begin",
        r"-----BEGIN[ _][^\n-]{1,40}-----(?:[^-]++|-(?!----END))*+(?:-----END[ _][^\n-]{1,40}-----)?+", "(secret)",
    ),
    _rule(
        "URL", "hosts", "://",
        r"(?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{0,20}+://[^\s\"'<>]++", "(url)",
    ),
    _rule(
        "connection string", "secrets", "account endpoint sharedaccess sig= x-amz- x-goog-",
        r"(?<![A-Za-z0-9])(?:(?:DefaultEndpointsProtocol|Account(?:Name|Key)|BlobEndpoint|EndpointSuffix"
        r"|SharedAccess(?:KeyName|Key|Signature)|X-(?:Amz|Goog)-[A-Za-z-]{1,40}+)=|(?:(?<=[?&])sig=|sig=(?=[\w%+/.~-]{16})))"
        r"[^\s\"'<>]*+",
        "(secret)", flags=re.IGNORECASE,
    ),
    _rule(
        "secret after its word", "secrets",
        "pass secret token _key -key apikey sskey tekey pwd credential authoriz cookie bearer",
        rf"(?<![\w-])(?:[\w-]{{0,40}}{_TELLING_WORD}(?:[\"']?\s*+=\s*+|[\"']?:\s++|[\"']\s*+:\s*+)"
        rf"|-[\w-]{{0,41}}{_TELLING_WORD}\s++|authorization[\"']?\s*+[:=]\s*+[\"']?(?:\w++\s++)?+|bearer\s++(?=\S{{8}})"
        rf"|(?:set-)?cookie:\s*+[^\n]*+){_VALUE}",
        "(secret)", flags=re.IGNORECASE,
    ),
    _rule(
        "token", "secrets", _PREFIXES,
        rf"(?<![A-Za-z0-9])(?:{_TOKENS})", "(secret)", shapes=f"{'w' * 11}|wwww.w|ww.wwwwwwww|www.wwwwwwww",
    ),
    _rule(
        "environment", "environment", "=",
        rf"(?<![\w-])(?:[A-Z][A-Z0-9]*+_[A-Z0-9_]*+|{_ENVIRONMENT_WORDS})={_VALUE}", "(environment)",
    ),
    _rule(
        "user@host, e-mail", "users hosts", "@",
        r"(?<![\w?@.+-])[\w.+-]++@(?:[A-Za-z][\w.-]*+|(?:\d{1,3}\.){3}\d{1,3}|\[[0-9A-Fa-f:.]{2,45}\])"
        r"(?::(?=[\w.~-]*+/)[\w./~-]++)?+",
        "(user)",
    ),
    _rule(
        "@host, user@", "users hosts", "@",
        r"(?<![\w@:>)\]])@[A-Za-z][\w.-]*+|(?<![\w?@.+-])[\w.+-]++@(?![\w@])", "(user)", sorts=("text",),
    ),
    _rule(
        "serial number after its word", "devices", "serial machine unique asset uuid guid imei s/n sn:",
        rf"(?<![A-Za-z0-9]){_SERIAL_WORD}\.?+(?:[\s_]*+[:=#][\s_]*+|(?<=number|serial|ial no|al no\.)\s++)[\"']?"
        r"(?=[A-Za-z-]{0,40}+\d)[\w-]{4,}+",
        decide.serial, flags=re.IGNORECASE,
    ),
    _rule(
        "machine's name as systems give it", "hosts", "laptop- desktop- win- ip-",
        r"(?<![\w.-])(?:(?:LAPTOP|DESKTOP|WIN)-(?=[A-Z]*+\d)[A-Z0-9]{7,15}+|ip-(?:10|172|192)(?:-\d{1,3}){3})(?!\w)",
        "(host)",
    ),
    _rule(
        "telephone number", "users", "",
        r"(?<![\w.)+-])\+\d{1,3}(?:[ _.()/-]{1,2}\d{1,8}){2,5}(?!\w|\.\w)|(?<![\w.)+-])\+\d{9,15}+(?!\w|\.\w)"
        r"|(?<![\w.-])(?:\(\d{3}\) ?|\d{3}[ -])\d{3}-\d{4}(?![\w-])|(?<![\w.-])0\d{2,4}[ /-]\d{6,8}(?!\w|\.\w)",
        decide.telephone, shapes="+0|000-0000|0 000000|0/000000|0-000000",
    ),
    _rule(
        "path as an address or JSON spells it", "paths", "%2f \\/",
        rf"(?:%2[Ff]|\\/)(?:{_ROOTS})(?:%2[Ff]|\\/)[^\s\"'<>|;,()=]*+", "(path)",
    ),
    _rule("path", "paths", "/ \\", _LAYER_PATH, "(path)", sorts=("layer",)),
    _rule("path", "paths", "/ \\", _PATH, "(path)", sorts=("name", "text")),
    _rule(
        "domain\\user", "users", "\\",
        r"(?<![\w\\/.:-])[A-Za-z][\w.-]*+(?:\\{1,2}+[\w.$-]++)++", "(user)",
    ),
    _rule("SID", "users", "s-1-", r"(?<![A-Za-z0-9])S-1-\d{1,15}+(?:-\d{1,10}+){1,15}+", "(user)"),
    _rule(
        "device UUID", "devices", "",
        rf"{_NO_HEX_BEFORE}(?:(?:(?:GPU|MIG|NPU|XPU)-)?+{_HEX}{{8}}([-_]){_HEX}{{4}}\1{_HEX}{{4}}\1{_HEX}{{4}}\1"
        rf"{_HEX}{{12}}|(?:GPU|MIG|NPU|XPU)-(?:0x)?+{_HEX}{{8,32}}+(?:-{_HEX}{{4,12}})*+){_NO_HEX_AFTER}",
        "(device id)", shapes="hhhhhhhh",
    ),
    _rule(
        "MAC address", "hosts", "",
        rf"(?<![0-9A-Za-z:-]){_HEX}{{2}}(?::{_HEX}{{2}}){{5,19}}+(?![0-9A-Za-z]|:[0-9A-Za-z:])"
        rf"|(?<![\w-])(?=[0-9-]*+[A-Fa-f])(?:{_HEX}{{2}}-){{5,7}}+{_HEX}{{2}}(?![\w-])"
        rf"|(?<![\w.])(?=[0-9.]*+[A-Fa-f]){_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}}(?![\w.])",
        "(host)", shapes="hh:hh:hh:hh|hh-hh-hh-hh|hhhh.hhhh.hhhh",
    ),
    _rule(
        "IPv6 address", "hosts", "",
        rf"(?<![\w:.])(?:{_HEX}{{0,4}}:){{2,8}}+{_HEX}{{0,4}}+(?:%\w{{1,15}}+)?+(?:/\d{{1,3}}+)?+(?!\w|:[\w:])",
        decide.ipv6, shapes="::|hhhh:",
    ),
    _rule(
        "pointer", "pointers", "0x",
        rf"{_NO_HEX_BEFORE}0[xX](?:{_HEX}{{5,16}}+|{_HEX}{{2,8}}+(?:[_:'`]{_HEX}{{2,8}}+)++){_NO_HEX_AFTER}",
        decide.pointer,
    ),
    _rule(
        "pointer without 0x", "pointers", "",
        rf"(?<![\w.-])(?:{_HEX}{{16}}|{_HEX}{{12}}|{_HEX}{{4}}(?:[_:'`]{_HEX}{{4}}){{2,3}}+|{_HEX}{{8}}[_:'`]{_HEX}{{8}})"
        r"(?!\w|[.:'`-]\w)",
        decide.bare_pointer, shapes="hhhhhhhhhhhh|hhhh_hhhh|hhhh:hhhh|hhhh'hhhh|hhhh`hhhh",
    ),
    _rule(
        "IPv4 address", "hosts", "",
        r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\w)(?::\d{1,5}+|/\d{1,2}+)?+", decide.ipv4, shapes=".0.|.00.|.000.",
    ),
    _rule(
        "host with a domain", "hosts", "",
        r"(?<![\w.-])[A-Za-z0-9][\w-]*+(?:\.[\w-]++)++(?!\()", decide.host,
        shapes=".x",
    ),
    _rule(
        "random text", "secrets", "",
        r"(?<![\w+/-])(?:[\w+/-]{40,}+={0,2}+|[A-Za-z0-9+/]{18,}+={1,2}+)(?![\w=])", decide.random,
        shapes=f"{'w' * 40}|{'w' * 18}=",
    ),
)  # fmt: skip


def rules_for(sort: Sort, cut: frozenset[str]) -> tuple[Rule, ...]:
    """Those that apply to fields of a sort, when the kinds in ``cut`` are cut."""
    return tuple(rule for rule in RULES if sort in rule.sorts and rule.kinds & cut)


def _table(classes: dict[str, str]) -> dict[int, str]:
    return {ord(character): shape for shape, characters in classes.items() for character in characters}


_SMALL, _DIGITS = string.ascii_lowercase, string.digits
_AS_HEX = _table({"x": _SMALL, "h": "abcdef" + _DIGITS})
_AS_NUMBERS = _table({"x": _SMALL, "0": _DIGITS})
_AS_WORDS = _table({"w": _SMALL + _DIGITS + "_+/-"})


def _shapes(small: str) -> str:
    """Three lines: ``h`` for each hexadecimal digit, ``0`` for each decimal one, ``w`` for what words are made of."""
    return f"{small.translate(_AS_HEX)}\n{small.translate(_AS_NUMBERS)}\n{small.translate(_AS_WORDS)}"


def without_private(text: str, rules: tuple[Rule, ...]) -> str:
    """``text`` without what is private by ``rules``; the same object when there is nothing."""
    small = text.lower()
    shapes = _shapes(small)
    for rule in rules:
        for shape in rule.shapes:
            if shape in shapes:
                break
        else:
            continue
        for mark in rule.marks:
            if mark in small:
                break
        else:
            continue
        text = rule.pattern.sub(rule.becomes, text)
    return text
