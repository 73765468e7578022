"""``mio2trace bundle``: a run to give away, without what docs/privacy.md lists."""

from __future__ import annotations

import os

import click

from mio2trace.commands.options import Command, Reading, files_argument, reading_options, refuse_to_overwrite
from mio2trace.commands.printing import say, tell, write


@click.command(cls=Command, no_args_is_help=True)
@files_argument
@click.option("-o", "--output", default="bundle.zip", show_default=True, metavar="OUT", help="The archive.")
@click.option("--raw", is_flag=True, help="Put the files in as they are, too: with all that is private in them.")
@click.option(
    "--check", is_flag=True, help="List every word that was kept, but for numbers and known names, for you to read."
)
@reading_options
def bundle(files: tuple[str, ...], output: str, raw: bool, check: bool, reading: Reading, quiet: bool) -> None:
    """One archive of a run to give away, without what is private.

    Takes what `mio2trace convert` takes, and archives of `mio2trace record`. Paths, hosts, users, tokens, command line
    and environment stay out; addresses become others, so that what they join stays joined. The archive is an input of
    every command and gives the links that the files give. Nothing is sent anywhere.

    \b
    Examples:
      mio2trace bundle run.zip -o bug.zip
      mio2trace bundle run.log run_results.db -o bug.zip --check
    """
    from mio2trace.bundles.making import kept, make
    from mio2trace.notes import InputError, OptionError
    from mio2trace.snapshot.places import is_dataset

    if os.path.splitext(output)[1].lower() != ".zip":
        raise OptionError(f"{output}: expected a name that ends in .zip")
    refuse_to_overwrite(files, output)
    dataset = next((file for file in files if file != "-" and is_dataset(file)), None)
    if dataset is not None:
        raise InputError(f"{dataset}: is a dataset; expected the files of the run, which a bundle holds")
    made = make(files, output, reading.analysis(), raw=raw)
    if check:
        write(f"{one.times:8} {one.word}  ({', '.join(one.members)})\n" for one in kept(output))
    say(made.notes, [], quiet)
    if quiet:
        return
    if made.no_trace:
        tell(f"note: no trace in it: {made.no_trace}")
    if raw:
        tell("problem: raw/ holds the files as they are, with all that is private in them: not to be published")
    stated = [f"{name} {', '.join(values)}" for name, values in made.machine.items() if values]
    missing = [name for name, values in made.machine.items() if not values]
    tell(f"machine: {'; '.join(stated) or 'the files state nothing'}")
    if missing:
        tell(
            f"not stated: {', '.join(missing)}; name them in your report (rocminfo, rocm version), they are asked first"
        )
    tell(f"wrote {output} ({os.path.getsize(output) / 1000:.0f} kB: {', '.join(made.members)})")
