"""Private text by its form: a table of rules, each with the replacement (docs/privacy.md).

Every expression takes linear time: repetitions are possessive or bounded, and a match begins only at the beginning of a
word. If an expression alone cannot decide in linear time, a function decides: it takes the match and returns its
replacement, or the text itself if it is not private.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from mio2trace.model import Sort
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
_DIGIT = late(r"\d+")
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
    numbers = _DIGIT.findall(match[0])
    count = sum(map(len, numbers))
    sizes = not match[0].startswith(("+", "(", "0")) and not any(
        int(number) % 4 for number in numbers[numbers[0] == "1" :]
    )
    return match[0] if sizes or not 8 <= count <= 15 else "(telephone)"


def _after_its_word(what: str) -> Callable[[re.Match[str]], str]:
    """Keep the word, and a value that names nobody and no machine: ``user=root``, ``host: localhost``."""
    return lambda match: match[0] if match["name"].lower() in OF_NOBODY else f"{match['word']}({what})"


def key_of_a_service(match: re.Match[str]) -> str:
    """A hash of Git's length is a key of Weights & Biases if their name precedes it closely."""
    before = match.string[max(0, match.start() - _SHORTLY) : match.start()].lower()
    return "(secret)" if "wandb" in before or "w&b" in before else match[0]


def pod(match: re.Match[str]) -> str:
    """``train-7f9c8d6b5-x2k4z``: the last two parts come from Kubernetes and consist of letters and digits that spell
    no word."""
    *_, made, last = match[0].split("-")
    if _OF_REPLICAS.fullmatch(made) and _OF_A_POD.fullmatch(last) and _DIGIT.search(made) and _LETTERS.search(made):
        return "(host)"
    return match[0]


def random(match: re.Match[str]) -> str:
    """Letters of both cases and digits without words: a key, a signature, a line of base64.

    Other texts have another form. Names of layers, solvers and kernels are made of words or have many ``_`` or ``/``.
    Mangled names begin with ``_``, Tensile's with ``Cijk_``. Hashes have small letters only. Sizes with ``x`` between
    them name a problem (``3x224x224x7x7x64x112x112x16xNCHWxFP32x3x3x2x2x1x1x1xF``).
    """
    text = match[0].rstrip("=")
    if text.startswith(("_", "Cijk_")) or text.islower() or text.isupper() or text.isalpha():
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


# -- Keys and tokens of services, which have forms of their own: the beginning of each, and the whole form -------------


_TABLE: Final = (
    # code hosting and packages
    ("ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_\w{16,}+"),
    ("github_pat_", r"github_pat_\w{16,}+"),
    ("glpat- gldt- glrt- glptt- glcbt- glft-", r"gl(?:pat|[dr]t|ptt|cbt|ft)-[\w-]{16,}+"),
    ("npm_", r"npm_[A-Za-z0-9]{16,}+"),
    ("pypi-", r"pypi-[\w-]{16,}+"),
    ("rubygems_", r"rubygems_\w{16,}+"),
    ("dckr_pat_ dckr_oat_", r"dckr_[po]at_[\w-]{8,}+"),
    ("atatt atctt", r"AT[AC]TT[\w-]{16,}+"),
    # clouds
    ("akia asia", r"A(?:KIA|SIA)[A-Z0-9]{12,}+(?>(?::[\w+/]++)?)"),
    ("aiza", r"AIza[\w-]{16,}+"),
    ("ya29.", r"ya29\.[\w.-]{8,}+"),
    ("gocspx-", r"GOCSPX-[\w-]{16,}+"),
    ("1//0", r"1//0[\w-]{16,}+"),
    ("dop_v1_", r"dop_v1_[0-9a-f]{24,}+"),
    ("dapi", r"dapi[0-9a-f]{32}"),
    ("hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{12,}+"),
    ("tskey-", r"tskey-[\w-]{12,}+"),
    ("pul-", r"pul-[0-9a-f]{40}"),
    # models and their runs
    ("hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{16,}+"),
    ("sk- rk-", r"[sr]k-[\w-]{16,}+"),
    ("wandb_v", r"wandb_v\d_\w{16,}+"),
    ("nvapi-", r"nvapi-[\w-]{16,}+"),
    ("r8_", r"r8_[A-Za-z0-9]{30,}+"),
    ("gsk_", r"gsk_[A-Za-z0-9]{20,}+"),
    ("pplx-", r"pplx-[A-Za-z0-9]{16,}+"),
    ("xai-", r"xai-[A-Za-z0-9]{20,}+"),
    ("lsv2_", r"lsv2_[a-z]{2}_\w{16,}+"),
    ("tgp_v1_", r"tgp_v1_[\w-]{16,}+"),
    ("glsa_", r"glsa_\w{16,}+"),
    # messages and mail
    ("xox", r"xox[a-z](?>(?:\.xox[a-z])?)-[\w-]{8,}+"),
    ("xapp-", r"xapp-[\w-]{16,}+"),
    ("hooks.slack", r"hooks\.slack\.com/\S++"),
    (":aa", r"\d{8,10}:AA[\w-]{32,}+"),  # Telegram
    ("sg.", r"SG\.[\w-]{8,}+\.[\w-]{8,}+"),
    ("lin_api_", r"lin_api_\w{16,}+"),
    ("ntn_", r"ntn_[A-Za-z0-9]{32,}+"),
    ("figd_", r"figd_[\w-]{16,}+"),
    # payment, shops, the rest
    ("k_live_ k_test_", r"[srp]k_(?:live|test)_\w{8,}+"),
    ("whsec_", r"whsec_\w{12,}+"),
    ("shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{24,}+"),
    ("sq0", r"sq0[a-z]{3}-[\w-]{16,}+"),
    ("sntrys_ sntryu_", r"sntry[su]_[\w+/=-]{16,}+"),
    ("pmak-", r"PMAK-[0-9a-f]{16,}+(?>(?:-\w++)?)"),
    ("age-secret-key-", r"AGE-SECRET-KEY-1[A-Z0-9]{12,}+"),
    ("eyj", r"eyJ[\w-]{8,}+(?>(?:\.[\w-]*+)*)"),  # JWT
)  # fmt: skip
TOKEN: Final = rf"(?<![A-Za-z0-9])(?:{'|'.join(whole for _, whole in _TABLE)})"
BEGINNINGS: Final = " ".join(begins for begins, _ in _TABLE)
"""In small letters; every text with a token contains one of them."""


# -- The table of rules ------------------------------------------------------------------------------------------------

KINDS = ("paths", "hosts", "users", "pointers", "environment", "secrets", "devices")
"""The words of ``--keep``."""


class Rule(msgspec.Struct, frozen=True):
    """A rule. ``form``: its name in the docs. ``kinds``: it applies unless all of them are kept. ``sorts``: its fields.

    Every text of this form contains one of ``marks`` (small letters), and its `_shapes` contain one of ``shapes``. This
    check spares nearly all texts the slow expression. An empty mark or shape is in every text.
    """

    form: str
    kinds: frozenset[str]
    marks: tuple[str, ...]
    shapes: tuple[str, ...]
    pattern: re.Pattern[str]
    becomes: str | Callable[[re.Match[str]], str]
    sorts: tuple[Sort, ...] = ("layer", "name", "text")


_COLONS = r":(?=(?:[0-9A-Fa-f]{0,4}:){3})[0-9A-Fa-f:]++(?>(?:%\w++)?)"
"""An IPv6 address that is a part of a path, or ends one: the rest of the path would not be recognised."""
_CUT = r"\((?:telephone|device id)\)"
"""A replacement inside of a path: the path goes on behind it."""
_PART = rf"""(?>(?:[^\s/\\"'<>|;,:()=\[\]{{}}*?]++|{_COLONS}|:(?=\\)|{_CUT})+)"""
_MORE = (
    rf"(?>(?:[/\\]++{_PART})*)[/\\]*+"
    rf"(?>(?: (?!-)[^\s/\\\"'<>|;,:()=]++(?=[/\\])(?>(?:[/\\]++{_PART})+))*)"
)
_BEFORE = r"""(?:(?<=-[ILBFo])|(?<![\w.)\]}/\\-]))"""
_ROOTS = (
    "home|Users|root|mnt|media|tmp|var|opt|usr|etc|scratch|nfs|net|srv|proc|sys|dev|run|lustre|gpfs|export|workspace"
    r"|work|data\d*+|vol\w*+|Volumes|private|nobackup|project\w*+|local|boot|lib\w*+|s?bin|app|github|builds?|jenkins"
)
_FOLDER_VARIABLE = (
    r"\$\{?+(?:HOME|USER|PWD|TMPDIR|SCRATCH|WORK|WORKDIR|PROJECT)\}?+"
    "|%(?:USERPROFILE|HOMEPATH|APPDATA|LOCALAPPDATA|TEMP)%"
)
_HOME_OR_DRIVE = (
    rf"(?:(?:~[\w.-]*+|{_FOLDER_VARIABLE})[/\\]|(?<![A-Za-z0-9])[A-Za-z]:[/\\]++)(?:{_PART}{_MORE})?"
    rf"|(?:\\{{2,4}}+|(?<!\S)\\){_PART}{_MORE}"
)
_WITHIN = rf"(?<=[./])/(?:{_ROOTS})/{_PART}{_MORE}"
"""In ``x//home/me/y`` and ``../../home/me/y``."""
_LAYER_PATH = rf"{_BEFORE}(?:/(?:{_ROOTS})/{_PART}{_MORE}|{_HOME_OR_DRIVE})|{_WITHIN}"
_PATH = rf"{_BEFORE}(?:/{_PART}/(?:{_PART}{_MORE})?|/(?:{_ROOTS})(?!\w)|{_HOME_OR_DRIVE})|^/{_PART}$|{_WITHIN}"
_BEGINS_A_PATH = " /|-w/|./|//|~|$|%|\\"
"""`_shapes` of which one is in every text with a path: not in ``dv/dt``, which many texts of ours have."""
_MOST_SETS = 1 << 12
_LONG, _MOST_LONG = 1 << 12, 8
"""A long text costs milliseconds and occurs in several records, so the last few results are kept."""
_VALUE = r"""(?:'[^']*+'|"[^"]*+"|\S*+)"""
_TELLING_WORD = (
    r"(?:passw(?:or)?d|passphrase|secret|token|(?:api|access|private|license|licence)[ _-]?key|(?<![A-Za-z])pwd"
    r"|credentials?)[\w-]{0,40}+"
)
_ENVIRONMENT_WORDS = (
    "PATH|HOME|USER|LOGNAME|HOSTNAME|HOST|PWD|SHELL|DISPLAY|LANG|TERM|MAIL|USERNAME|USERPROFILE|USERDOMAIN"
    "|COMPUTERNAME|LOGONSERVER|APPDATA|TEMP|TMP"
)
_HEX = "[0-9A-Fa-f]"
_NO_HEX_BEFORE, _NO_HEX_AFTER = "(?<![0-9A-Za-z])", "(?![0-9A-Za-z])"
_IS = r"""(?:["']?\s*+=\s*+["']?|:[\s_]++["']?|["']\s*+:\s*+["'])"""
"""The text between a word and its value: ``user=bob``, ``user: bob`` (TensorFlow's views: ``user:_bob``), ``"user":
"bob"``."""
_NAME = r"(?P<name>[^\W\d_][\w.$-]*+)"
_PERSON = (
    rf"(?:user(?:[ _-]?(?:name|id))?|login(?:[ _-]?name)?|account|(?:job[ _-]?)?owner){_IS}"
    r"|--(?:user(?:-?name)?|login)\s++|<(?:user(?:name)?|login|owner)>|user ['\"]"
    r"|(?:logged[ _]in[ _]as|submitted[ _]by)(?::?[\s_]++(?>(?:user[\s_]++)?))"
)
_AUTHOR = r"""(?:author|committer)(?:["']?\s*+=\s*+["']?|:[\s_]++|["']\s*+:\s*+["'])"""
_MACHINE = (
    rf"(?:(?:batch|exec|req)?[ _-]?host(?:[ _-]?names?|s)?|node(?:name|list)|machine[ _-]?name"
    rf"|running[ _]on[ _]machine|pod(?:[ _-]?name)?){_IS}"
    r"|--(?:host(?:-?name)?|nodelist)\s++|<host(?:name)?>|(?<![\w/.-])pods?/"
)
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
    """Make a rule. ``marks`` and ``shapes`` are words in one text; ``~`` is a blank in a mark."""
    return Rule(
        form,
        frozenset(kinds.split()),
        tuple(mark.replace("~", " ") for mark in marks.split() or [""]),
        tuple(shapes.split("|")),
        late(pattern, flags),
        becomes,
        sorts,
    )


RULES: tuple[Rule, ...] = (
    _rule(
        "key block", "secrets", "-----begin",
        r"-----BEGIN[ _][^\n-]{1,40}-----(?>(?:[^-]++|-(?!----END))*)(?>(?:-----END[ _][^\n-]{1,40}-----)?)",
        "(secret)",
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
        "pass secret token _key -key i~key s~key e~key apikey sskey tekey pwd credential authoriz cookie bearer",
        rf"(?<![\w-])(?:[\w-]{{0,40}}{_TELLING_WORD}(?:[\"']?\s*+=\s*+|[\"']?:\s++|[\"']\s*+:\s*+)"
        rf"|-[\w-]{{0,41}}{_TELLING_WORD}\s++|authorization[\"']?\s*+[:=]\s*+[\"']?(?>(?:\w++\s++)?)|bearer\s++(?=\S{{8}})"
        rf"|(?:set-)?cookie:\s*+[^\n]*+){_VALUE}",
        "(secret)", flags=re.IGNORECASE,
    ),
    _rule(
        "cloud resource", "hosts", "arn: projects/ subscriptions/",
        r"(?<![\w:])arn:aws[\w-]*+:[^\s\"'<>,;()]++"
        r"|(?<![\w.-])projects/[\w.:-]++/(?:zones|regions|locations|global|serviceAccounts|secrets)(?>(?:/[\w.@-]++)*)"
        r"|(?<![\w.-])/?subscriptions/[\w-]{8,}+(?>(?:/[\w.-]++)*)",
        "(cloud resource)",
    ),
    _rule(
        "cloud id", "hosts", "-",
        r"(?<![\w.-])(?:i|ami|aki|vol|snap|eni|eipalloc|vpc|subnet|sg|igw|rtb|acl|nat|lt|fs|sir|tgw|vpce)-"
        r"(?:0[0-9a-f]{16}|(?=[0-9]*+[a-f])(?=[a-f]*+[0-9])[0-9a-f]{8})(?![\w-])",
        "(cloud resource)", shapes="-hhhhhhhh",
    ),
    _rule(
        "key of SSH", "users", "aaaa md5:",
        r"(?<![\w-])(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-nistp\d{3}|sk-[\w-]{1,40}@openssh\.com)[ _]AAAA[\w+/]++=*+"
        rf"(?>(?:[ _](?=[A-Za-z])[\w.@-]++)?)|(?<![A-Za-z0-9])MD5:{_HEX}{{2}}(?::{_HEX}{{2}}){{15}}",
        "(user)",
    ),
    _rule(
        "hash that is a key by the word before it", "secrets", "wandb w&b",
        rf"{_NO_HEX_BEFORE}[0-9a-f]{{40}}{_NO_HEX_AFTER}", key_of_a_service, shapes="h" * 40,
    ),
    _rule(
        "licence key", "secrets", "-",
        r"(?<![\w-])(?=[0-9-]*+[A-Z])(?=[A-Z-]*+[0-9])[A-Z0-9]{5}(?:-[A-Z0-9]{5}){4}(?![\w-])", "(secret)",
        shapes="w" * 29,
    ),
    _rule(
        "token", "secrets", BEGINNINGS,
        TOKEN, "(secret)", shapes=f"{'w' * 11}|wwww.w|ww.wwwwwwww|www.wwwwwwww",
    ),
    _rule(
        "environment", "environment", "=",
        rf"(?<![\w-])(?:[A-Z][A-Z0-9]*+_[A-Z0-9_]*+|{_ENVIRONMENT_WORDS})={_VALUE}", "(environment)",
    ),
    _rule(
        "user@host, e-mail", "users hosts", "@",
        r"(?<![\w?@.+-])[\w.+-]++@(?:[A-Za-z][\w.-]*+|(?:\d{1,3}\.){3}\d{1,3}|\[[0-9A-Fa-f:.]{2,45}\])"
        r"(?>(?::(?=[\w.~-]*+/)[\w./~-]++)?)",
        "(user)",
    ),
    _rule(
        "@host, user@", "users hosts", "@",
        r"(?<![\w@:>)\]])@[A-Za-z][\w.-]*+|(?<![\w?@.+-])[\w.+-]++@(?![\w@])", "(user)", sorts=("text",),
    ),
    _rule(
        "e-mail as an address or a person spells it", "users hosts", "%40 (at) [at]",
        r"(?<![\w.+%-])[\w.+-]++(?:%40| ?(?:\(at\)|\[at\]) ?)[A-Za-z][\w-]*+(?>(?:(?:\.| ?[(\[]dot[)\]] ?)[\w-]++)*)",
        "(user)",
    ),
    _rule(
        "user's name after its word", "users", "user login account owner logged submitted",
        rf"(?<![A-Za-z0-9])(?P<word>{_PERSON}){_NAME}", _after_its_word("user"), flags=re.IGNORECASE,
    ),
    _rule(
        "person's name after its word", "users", "author committer",
        rf"(?<![A-Za-z0-9])(?P<word>(?i:{_AUTHOR})){_NAME}(?:[ _][A-Z][\w.'-]*+){{0,3}}",
        _after_its_word("user"),
    ),
    _rule(
        "user's number and name", "users", "id= groups=",
        r"(?<![A-Za-z0-9])(?:e?[ug]id|groups)=\d++\([\w.$-]++\)(?>(?:,\d++\([\w.$-]++\))*)", "(user)",
    ),
    _rule(
        "machine's name after its word", "hosts", "host node machine pod",
        rf"(?<![A-Za-z0-9])(?P<word>{_MACHINE}){_NAME}(?>(?:\[[\d,-]++\])?)"
        r"(?>(?:,[\w.-]++(?>(?:\[[\d,-]++\])?))*)", _after_its_word("host"), flags=re.IGNORECASE,
    ),
    _rule(
        "container after its word", "hosts", "container docker crio libpod",
        r"(?<![A-Za-z0-9])(?:(?:cri-)?containerd|docker|crio|libpod|container(?:[ _-]?id)?)"
        r"(?:[-/:#]|[\s_]*+[:=]?+[\s_]*+)"
        r"[0-9a-f]{12,64}(?>(?:\.scope)?)(?!\w)",
        "(host)", flags=re.IGNORECASE, shapes="h" * 12,
    ),
    _rule(
        "serial number after its word", "devices", "serial machine unique asset uuid guid imei s/n sn:",
        rf"(?<![A-Za-z0-9]){_SERIAL_WORD}\.?+(?:[\s_]*+[:=#][\s_]*+|(?<=number|serial|ial no|al no\.)\s++)[\"']?"
        r"(?=[A-Za-z-]{0,40}+\d)[\w-]{4,}+",
        serial, flags=re.IGNORECASE,
    ),
    _rule(
        "machine's name as systems give it", "hosts",
        "laptop- desktop- -laptop -desktop -thinkpad -workstation -macbook -imac -mac- win- ip- ec2- gke- aks-",
        r"(?<![\w.-])(?:(?:(?:LAPTOP|DESKTOP|WIN)-(?=[A-Z]*+\d)[A-Z0-9]{7,15}+|ip-(?:10|172|192)(?:-\d{1,3}){3}"
        r"|ec2(?:-\d{1,3}){4}|gke-(?>(?:\w++-)+)(?<=-[0-9a-f]{8}-)[a-z0-9]{4}|aks-\w++-\d{8}-\w++"
        r"|(?>(?:\w++-)+)(?i:laptop|desktop|thinkpad|workstation|macbook)"
        r"|[A-Za-z0-9]++-(?:MacBook|iMac|Mac-mini|Mac-Studio)(?>(?:-(?:Pro|Air|\d++))*))(?!\w))(?>(?:\.(?!(?:log|txt|json)\b)[A-Za-z][\w-]*+)*)",
        "(host)",
    ),
    _rule(
        "node of a Cray", "hosts", "nid s0b s1b s2b s3b s4b s5b s6b s7b",
        r"(?<![\w.-])(?:nid\d{5,6}|x\d{4}c\d{1,2}s\d{1,2}b\d{1,2}(?:n\d{1,2})?)(?!\w)", "(host)",
        shapes="xxx00000|x0000x0x0x0",
    ),
    _rule(
        "pod of Kubernetes", "hosts", "-",
        r"(?<![\w.-])[a-z0-9]++(?>(?:-[a-z0-9]++){2,})(?![\w-])", pod, shapes="w" * 16,
    ),
    _rule(
        "telephone number after its word", "users", "tel phone fax",
        r"(?<![A-Za-z0-9])(?P<word>(?:tel(?:ephone)?|phone|fax)(?:[ _-]?(?:number|no))?\.?+[\s_]*+[:=][\s_]*+)"
        r"(?P<name>[+(]{0,2}\d(?:[ _()/.-]{0,3}\d){4,14})(?!\w)",
        _after_its_word("telephone"), flags=re.IGNORECASE,
    ),
    _rule(
        "telephone number", "users", "",
        r"(?<![\w.)+-])\+\d{1,3}(?:[ _.()/-]{1,3}\d{1,10}){2,5}(?!\w|\.\w)|(?<![\w.)+-])\+\d{9,15}+(?!\w|\.\w)"
        r"|(?<![\w.-])(?:\(\d{3}\) ?|\d{3}[ -])\d{3}-\d{4}(?![\w-])|(?<![\w.-])0\d{2,4}[ /-]\d{6,8}(?!\w|\.\w)"
        r"|(?<![\w.)\]-])\(0\d{1,4}\)[ _/-]?\d{3,8}(?:[ _-]\d{2,5}){0,2}(?!\w|\.\w)"
        r"|\(0\d{1,4}\)[ _/-]?\d{6,8}(?!\w|\.\w)"
        r"|(?<=\d)00[1-9]\d[ _]\d{2,4}[ _]\d{6,8}(?!\w|\.\w)"
        r"|(?<![\w.-])00[1-9]\d{0,2}[ _]\d{2,4}[ _]\d{4,8}(?!\w|\.\w)"
        r"|(?<![\w.-])1-[2-9]\d\d-[2-9]\d\d-\d{4}(?![\w-])",
        telephone, shapes="+0|000-0000|0 000000|0/000000|0-000000|0)000|0) 000|0)-000|0)/000|0)_000"
        "|000 00 0000|000 000 0000|000 0000 0000|000_00_0000|000_000_0000|000_0000_0000",
    ),
    _rule(
        "path as an address or JSON spells it", "paths", "%2f \\/",
        rf"(?:%2[Ff]|\\/)(?:{_ROOTS})(?:%2[Ff]|\\/)[^\s\"'<>|;,()=]*+", "(path)",
    ),
    _rule("path", "paths", "/ \\", _LAYER_PATH, "(path)", shapes=_BEGINS_A_PATH, sorts=("layer",)),
    _rule("path", "paths", "/ \\", _PATH, "(path)", shapes=_BEGINS_A_PATH, sorts=("name", "text")),
    _rule(
        "domain\\user", "users", "\\",
        r"(?<![\w\\/.:-])[A-Za-z][\w.-]*+(?>(?:\\{1,2}+[\w.$-]++)+)", "(user)",
    ),
    _rule("SID", "users", "s-1-", r"(?<![A-Za-z0-9])S-1-\d{1,15}+(?>(?:-\d{1,10}+){1,15})", "(user)"),
    _rule(
        "device UUID", "devices", "",
        rf"{_NO_HEX_BEFORE}(?:(?>(?:(?:GPU|MIG|NPU|XPU)-)?){_HEX}{{8}}([-_]){_HEX}{{4}}\1{_HEX}{{4}}\1{_HEX}{{4}}\1"
        rf"{_HEX}{{12}}|(?:GPU|MIG|NPU|XPU)-(?>(?:0x)?){_HEX}{{8,32}}+(?>(?:-{_HEX}{{4,12}})*)){_NO_HEX_AFTER}",
        "(device id)", shapes="hhhhhhhh",
    ),
    _rule(
        "MAC address", "hosts", "",
        rf"(?<![0-9A-Za-z:-]){_HEX}{{2}}(?>(?::{_HEX}{{2}}){{5,19}})(?![0-9A-Za-z]|:[0-9A-Za-z:])"
        rf"|(?<![\w-])(?=[0-9-]*+[A-Fa-f])(?>(?:{_HEX}{{2}}-){{5,7}}){_HEX}{{2}}(?![\w-])"
        rf"|(?<![\w.])(?=[0-9.]*+[A-Fa-f]){_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}}(?![\w.])",
        "(host)", shapes="hh:hh:hh:hh|hh-hh-hh-hh|hhhh.hhhh.hhhh",
    ),
    _rule(
        "IPv6 address", "hosts", "",
        rf"(?<![\w:.])(?>(?:{_HEX}{{0,4}}:){{2,8}}){_HEX}{{0,4}}+(?>(?:%\w{{1,15}}+)?)(?>(?:/\d{{1,3}}+)?)(?!\w|:[\w:])",
        ipv6, shapes="::|hhhh:",
    ),
    _rule(
        "pointer", "pointers", "0x",
        rf"{_NO_HEX_BEFORE}0[xX](?:{_HEX}{{5,16}}+|{_HEX}{{2,8}}+(?>(?:[_:'`]{_HEX}{{2,8}}+)+)){_NO_HEX_AFTER}",
        pointer,
    ),
    _rule(
        "pointer without 0x", "pointers", "",
        rf"(?<![\w.-])(?:{_HEX}{{16}}|{_HEX}{{12}}|{_HEX}{{4}}(?>(?:[_:'`]{_HEX}{{4}}){{2,3}})|{_HEX}{{8}}[_:'`]{_HEX}{{8}})"
        r"(?!\w|[.:'`-]\w)",
        bare_pointer, shapes="hhhhhhhhhhhh|hhhh_hhhh|hhhh:hhhh|hhhh'hhhh|hhhh`hhhh",
    ),
    _rule(
        "IPv4 address", "hosts", "",
        r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\w)(?>(?::\d{1,5}+|/\d{1,2}+)?)", ipv4,
        shapes=".0.|.00.|.000.",
    ),
    _rule(
        "host with a domain", "hosts", "",
        r"(?<![\w.-])[A-Za-z0-9][\w-]*+(?>(?:\.[\w-]++)+)(?!\()", host,
        shapes=".x",
    ),
    _rule(
        "random text", "secrets", "",
        r"(?<![\w+/-])(?:[\w+/-]{40,}+={0,2}+|[A-Za-z0-9+/]{18,}+={1,2}+)(?![\w=])", random,
        shapes=f"{'w' * 40}|{'w' * 18}=",
    ),
)  # fmt: skip


_SMALL, _DIGITS, _OF_HEX = b"abcdefghijklmnopqrstuvwxyz", b"0123456789", b"abcdef0123456789"
_AS_NUMBERS = bytes.maketrans(_SMALL + _DIGITS, b"x" * len(_SMALL) + b"0" * len(_DIGITS))
_AS_HEX = bytes.maketrans(_SMALL + _OF_HEX, b"x" * len(_SMALL) + b"h" * len(_OF_HEX))
_AS_WORDS = bytes.maketrans(_SMALL + _DIGITS + b"_+/-", b"w" * (len(_SMALL) + len(_DIGITS) + 4))
_AS_PATHS = bytes(
    ord("w") if at in _SMALL + _DIGITS + b"_)]}" else at if at in rb"-./\~$%" else ord(" ") for at in range(256)
)
_SIGNS = frozenset(
    one
    for rule in RULES
    for one in "".join((*rule.marks, *rule.shapes))
    if one.isprintable() and one != " " and not one.isalnum()
)
"""The characters, other than letters and digits, that decide which rules may apply."""


def _shapes(small: str) -> str:
    """Return four lines about a text: ``h`` for each hexadecimal digit, ``0`` for each decimal one, ``w`` for word
    characters; and ``w`` for what no path begins behind, a blank for what it may begin behind.

    As text: looking for bytes in bytes takes several times as long."""
    plain = b" " + small.encode("ascii", "replace")
    return b"\n".join(map(plain.translate, (_AS_HEX, _AS_NUMBERS, _AS_WORDS, _AS_PATHS))).decode("ascii")


class Rules:
    """Rules, applied in their order."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._with_signs: dict[frozenset[str], tuple[Rule, ...]] = {}
        self._long: dict[str, str] = {}

    def without_private(self, text: str) -> str:
        """Return ``text`` without private parts; the same object if there are none."""
        if len(text) < _LONG:
            return self._applied(text)
        known = self._long.get(text)
        if known is None:
            if len(self._long) == _MOST_LONG:
                self._long.clear()
            known = self._long[text] = self._applied(text)
        return text if known == text else known

    def _applied(self, text: str) -> str:
        small = text.lower()
        signs = _SIGNS.intersection(small)
        rules = self._with_signs.get(signs)
        if rules is None:
            rules = self._possible(signs)
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

    def _possible(self, signs: frozenset[str]) -> tuple[Rule, ...]:
        """Return the rules that may apply to a text with these characters, each with its possible marks and shapes."""
        out = []
        for rule in self.rules:
            marks = tuple(mark for mark in rule.marks if _SIGNS.intersection(mark) <= signs)
            shapes = tuple(shape for shape in rule.shapes if _SIGNS.intersection(shape) <= signs)
            if marks and shapes:
                out.append(msgspec.structs.replace(rule, marks=marks, shapes=shapes))
        if len(self._with_signs) < _MOST_SETS:
            self._with_signs[signs] = tuple(out)
        return tuple(out)
