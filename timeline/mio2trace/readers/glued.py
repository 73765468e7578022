"""Lines that lost their end: two programs, or two threads, wrote into one file at once, and a line hangs at another."""

from __future__ import annotations

from mio2trace.readers.caffe.log import GLOG_HEAD, HEAD_ENDS
from mio2trace.readers.miopen.lines import PREFIX

_END = b"] "
"""Of a glog line's head."""


def glued_parts(line: bytes) -> list[bytes]:
    """The lines that a line is: cut where one of glog's begins in it, and one of MIOpen's within one of glog's.

    MIOpen's decoder cuts its own. What stands before the first may be a prefix, or the rest of anything.
    """
    first = line.find(_END)
    if first < 0 or (line[1:2].isdigit() and line.find(_END, first + 2) < 0 and b"MIOpen(" not in line):
        return [line]  # one head at most, and it is where the line begins
    if HEAD_ENDS.search(line) is None:
        return [line]
    heads = [head.start() for head in GLOG_HEAD.finditer(line)]
    if not heads or (len(heads) == 1 and not heads[0] and b"MIOpen(" not in line):
        return [line]
    parts = [line[: heads[0]] + b"\n"] if line[: heads[0]].strip() else []
    for begin, end in zip(heads, [*heads[1:], len(line)], strict=True):
        part = line[begin:end]
        inside = next((one.start() for one in PREFIX.finditer(part, part.find(_END) + 2) if one["backend"]), None)
        pieces = [part] if inside is None else [part[:inside], part[inside:]]
        parts += [piece if piece.endswith(b"\n") else piece + b"\n" for piece in pieces]
    return parts
