"""``mio2trace inspect``: the records of files as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from mio2trace.commands import options
from mio2trace.commands.printing import say, write
from mio2trace.outgoing import json_text

if TYPE_CHECKING:
    from mio2trace.files import Input


@click.command(cls=options.Command, no_args_is_help=True)
@options.files_argument
@options.reading_options
def inspect(files: tuple[str, ...], reading: options.Reading, quiet: bool) -> None:
    """Print the records of FILEs as JSON lines, as the readers understood them.

    Each file has a line ("record": "input"). A line for each of its records follows, by kind and in the order of the
    file. Records are calls, kernels, layer times, log events, and MIOpen's entries, commands and messages. Notes and
    problems are on stderr. FILEs may be gzipped; - is standard input. Private data is not removed: paths, names and
    addresses are unchanged.

    \b
    Examples:
      mio2trace inspect prof.json | head
      mio2trace inspect run.log | jq 'select(.record == "layer_time")'
      mio2trace inspect run.log | jq -r .record | sort | uniq -c
    """
    from mio2trace.analysis import analyse
    from mio2trace.privacy import KINDS

    analysis = analyse(files, reading.analysis(host_calls=True, keep=KINDS, join=False))
    write(_lines(analysis.inputs))
    say(analysis.notes, [], quiet)


def _lines(inputs: Sequence[Input]) -> Iterator[str]:
    import orjson

    from mio2trace.reports.inspect import lines

    for found in sorted(inputs, key=lambda file: file.source):
        facts = {
            "record": "input",
            "source": found.source,
            "file": found.name,
            "format": found.format,
            "size": found.size,
            "sha256": found.sha256,
        }
        yield json_text(orjson.dumps(facts).decode()) + "\n"
        for record in found.records:
            yield from (json_text(line.removesuffix("\n")) + "\n" for line in lines(record))
