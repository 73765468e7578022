"""Inputs that are made to be slow take no longer than others."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from mio2trace.cli import cli
from tests.fuzz.backtracking import limit
from tests.fuzz.slow_inputs import SLOW

SIZE = 120_000
LONGEST = 5.0
"""CPU seconds. All take a tenth of it; what crosses everything with everything takes more, or minutes."""


@pytest.mark.parametrize("name", SLOW)
def test_an_input_made_to_be_slow_is_not(name: str, tmp_path: Path) -> None:
    """Whatever comes of it: a trace, a table or one line that says why there is none."""
    slow = SLOW[name]
    paths = []
    for number, data in enumerate(slow.files(SIZE)):
        paths.append(tmp_path / f"{number}.log")
        paths[-1].write_bytes(data)
    arguments = [slow.command, *map(str, paths)]
    if slow.command == "convert":
        arguments += ["-o", str(tmp_path / "out.json")]
    with limit(LONGEST):
        result = CliRunner().invoke(cli, arguments)
    assert result.exit_code in (0, 1), result.output
