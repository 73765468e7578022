"""Make a small copy of a profile or an interleaved log: the texts of its OpenCL programs go, everything else stays.

    python traces/reduce.py prof.json small.prof.json
    python traces/reduce.py interleaved.log small.log

The texts belong to the libraries that wrote them, and no attribution needs them. The sizes that LibDNN states there
(``#define v_fin 3``) and the names of its kernels are facts about the run and are kept. An output named ``.gz`` is
compressed, without a time in it.
"""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

FACTS = re.compile(
    rb"#define (?:[MNK]G?|v_[a-zA-Z_0-9]+|[TR][A-Z0-9]+|WPT[MN]) [A-Za-z0-9_]+(?=\\n|\s)|void (?:conv|pool)_\w+\("
)
LIBDNN = b"v_num_tiles"
JSON_SOURCE = re.compile(rb'("source":\s*\{\s*)((?:"\d+":\s*"(?:[^"\\]|\\.)*"\s*,?\s*)+)(\})', re.DOTALL)
TEXT_SOURCE = re.compile(
    rb"(sources\[\d+\] <<\r?\n)(.*?)(\[dv/dt\] clCreateProgramWithSource sources\[\d+\] >>)", re.DOTALL
)


def facts(text: bytes, newline: bytes) -> bytes:
    """The lines of a program's text that sizes rest on; only LibDNN states them there."""
    return newline.join(FACTS.findall(text)) + newline if LIBDNN in text else b""


def reduce(content: bytes) -> bytes:
    """``content`` without the texts of programs."""
    content = JSON_SOURCE.sub(lambda m: m[1] + b'"0":\t"' + facts(m[2], rb"\n") + b'"' + m[3], content)
    return TEXT_SOURCE.sub(lambda m: m[1] + facts(m[2], b"\n") + m[3], content)


def main(source: str, target: str) -> None:
    content = reduce(Path(source).read_bytes())
    Path(target).write_bytes(gzip.compress(content, mtime=0) if target.endswith(".gz") else content)


if __name__ == "__main__":
    main(*sys.argv[1:])
