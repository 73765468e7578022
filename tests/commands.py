"""The program's commands, called in this process: how they end, and what they print, as text, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from click.testing import CliRunner, Result

from mio2trace.cli import cli


def invoked(*words: object, stdin: bytes | str = b"", **environment: str) -> Result:
    """However it ends. A fault of the program is raised."""
    return CliRunner(env=environment).invoke(cli, [*map(str, words)], input=stdin, catch_exceptions=False)


def printed(*words: object, stdin: bytes | str = b"") -> str:
    """Standard output of a command that ends well."""
    done = invoked(*words, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def stderr_of(done: Result, code: int) -> str:
    """What a command that ends with ``code`` said."""
    assert done.exit_code == code, done.output
    return done.stderr


def json_of(*words: object) -> Any:
    return json.loads(printed(*words, "--format", "json"))


def csv_of(*words: object) -> list[dict[str, str]]:
    return rows(invoked(*words, "--format", "csv"))


def rows(done: Result) -> list[dict[str, str]]:
    """Of the CSV that a command printed."""
    assert done.exit_code == 0, done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout)))
