"""What was kept in a bundle, for a person to read before giving it away: every word that is no number and no name of
ROCm's, MIOpen's, OpenCL's or this program's."""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from mio2trace.kernels.names import kernel_name
from mio2trace.notes import Notes
from mio2trace.privacy.fields import never_shown, records, shown
from mio2trace.readers.bundled import ROWS
from mio2trace.source import Source
from mio2trace.source.archive import MANIFEST

_WORD = re.compile(r"(?:(?<![\\\w])|(?<=\\n)|(?<=\\t))[A-Za-z_][\w@.+/-]{2,200}")
_KNOWN = re.compile(
    r"miopen\w+|MIOpen\w*|MIOPEN\w*|MLO_\w+|(?:__)?hip[A-Z]\w+|hsa_\w+|HSA_\w+|HIP_\w+|ROCR_\w+|cl[A-Z]\w+|CL_\w+"
    r"|rocprof\w*|roctx\w*|nccl\w*|rccl\w*|cuda[A-Z]\w+|aten::\w+|gfx\w+|(?:pid|rank|handle|host|machine|queue)\d*"
    r"|workSpace\w*|[a-z_]+\.cpp|x\d[\dx]*|[\dx]+|e[+-]?\d+|0x[0-9a-f]+|[a-f0-9]{64}"
)
_OURS = frozenset(
    re.findall(
        r"\w+",
        "mio2trace path host user url pointer environment secret device telephone info debug error warning "
        "true false null const void size_t float double half int char bool enum struct alpha beta algo bias "
        "handle stream command layer forward backward iteration average setting initial performing benchmark "
        "kernel copy conv conv2d pool relu norm name size time type data input output the and for not with "
        "from dim bottom top need set does caffe net archive schema format run log programs buffers blocks "
        "monotonic realtime boottime width code made_by bundle gpu cpu opencl hip use using total memory "
        "required testing begins ends done",
    )
)


class Kept(NamedTuple):
    """A word, how often it is there, and in which members."""

    word: str
    times: int
    members: tuple[str, ...]


def kept(path: str) -> list[Kept]:
    """The words of an archive's members, the most frequent first."""
    counts: Counter[str] = Counter()
    members: dict[str, set[str]] = {}
    for name, text in _texts(path):
        for word, count in Counter(_WORD.findall(text)).items():
            if not _is_known(word):
                counts[word] += count
                members.setdefault(word, set()).add(name)
    found = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Kept(word, count, tuple(sorted(members[word]))) for word, count in found]


def _texts(path: str) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.filename.endswith((".gz", MANIFEST)) or info.filename.startswith(("raw/", "trace.")):
                continue  # report, commands and trace are made of the same records
            source = Source("-", 0, Notes(), stdin=io.BytesIO(archive.read(info)))
            try:
                for block in source.blocks():
                    yield info.filename, block.decode("utf-8", "replace")
            finally:
                source.close()


@cache
def _vocabulary() -> frozenset[str]:
    """Names of the fields and classes that records are written with."""
    kinds = {*ROWS, *(kind for kind in records() if shown(kind) or never_shown(kind))}
    words = {kind.__name__ for kind in kinds} | {name for kind in kinds for name in kind.__struct_fields__}
    return frozenset(words | _OURS)


@cache
def _is_known(word: str) -> bool:
    bare = word.strip("._-/\\@+")
    if (
        len(bare) < 3
        or "Desc" in bare
        or bare.endswith(("Size", "SizeInBytes"))
        or bare.lower() in _OURS
        or bare in _vocabulary()
        or _KNOWN.fullmatch(bare)
    ):
        return True
    found = kernel_name(bare)
    return found is not None
