"""Make a small copy of a profile or an interleaved log: what is not needed or not ours goes, everything else stays.

    python traces/reduce.py prof.json small.prof.json
    python traces/reduce.py interleaved.log small.log
    python traces/reduce.py results.db small.results.db.gz

The texts of OpenCL programs belong to the libraries that wrote them, and no attribution needs them. The sizes that
LibDNN states there (``#define v_fin 3``) and the names of its kernels are facts about the run and are kept. Of a rocpd
database what tells of the machine and its user goes (environment, command line, host, machine id), with the arguments
of API calls, most calls that launch nothing, and the profiler's own copies of what stands in columns. An output named
``.gz`` is compressed, without a time in it.
"""

from __future__ import annotations

import gzip
import re
import sqlite3
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
ROCPD = (
    "UPDATE rocpd_info_process SET command = '', environment = '{}', extdata = '{}'",
    "UPDATE rocpd_info_node SET machine_id = '', hostname = '', release = '', version = ''",
    "UPDATE rocpd_info_agent SET extdata = '{}'",
    "UPDATE rocpd_info_code_object SET extdata = '{}', uri = ''",
    "UPDATE rocpd_info_kernel_symbol SET extdata = '{}'",
    "DELETE FROM rocpd_arg",
    "DELETE FROM rocpd_event WHERE id IN (SELECT r.event_id FROM rocpd_region r JOIN rocpd_string s ON s.id = r.name_id"
    " WHERE s.string GLOB 'hipEvent[CDER]*' OR s.string GLOB 'hipModule[GU]*' OR s.string GLOB 'hipModuleLoad*'"
    " OR s.string GLOB 'hipGetDevice*' OR s.string GLOB 'hipMalloc*' OR s.string GLOB '__hip*')",
    "DELETE FROM rocpd_region WHERE event_id NOT IN (SELECT id FROM rocpd_event)",
)


def facts(text: bytes, newline: bytes) -> bytes:
    """The lines of a program's text that sizes rest on; only LibDNN states them there."""
    return newline.join(FACTS.findall(text)) + newline if LIBDNN in text else b""


def reduce(content: bytes) -> bytes:
    """``content`` without the texts of programs."""
    content = JSON_SOURCE.sub(lambda m: m[1] + b'"0":\t"' + facts(m[2], rb"\n") + b'"' + m[3], content)
    return TEXT_SOURCE.sub(lambda m: m[1] + facts(m[2], b"\n") + m[3], content)


def reduce_database(content: bytes) -> bytes:
    """A rocpd database without what tells of the machine, packed anew."""
    with sqlite3.connect(":memory:") as database:
        database.deserialize(content)
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for statement in ROCPD:
            # the tables carry the run's id in their names, behind the name of the view that reads them
            word = next(word for word in statement.split() if word.startswith("rocpd_"))
            for table in tables:
                if table.startswith(word + "_"):
                    database.execute(statement.replace(word, f'"{table}"', 1))
        database.commit()
        database.execute("VACUUM")
        return database.serialize()


def main(source: str, target: str) -> None:
    content = Path(source).read_bytes()
    content = reduce_database(content) if content.startswith(b"SQLite format 3\0") else reduce(content)
    Path(target).write_bytes(gzip.compress(content, mtime=0) if target.endswith(".gz") else content)


if __name__ == "__main__":
    main(*sys.argv[1:])
