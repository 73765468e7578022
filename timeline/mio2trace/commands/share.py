"""``mio2trace record``: run a program and keep everything that mio2trace reads in one archive.

``mio2trace bundle``: an archive of a run to give away, without the private data that docs/privacy.md lists.
"""

from __future__ import annotations

import os
import shutil

import click

from mio2trace import commands as console
from mio2trace.commands import say, tell, write
from mio2trace.machine import given_environment

SECONDS = click.FloatRange(min=0, min_open=True)


@click.command(
    cls=console.Command,
    no_args_is_help=True,
    context_settings={"allow_interspersed_args": False},
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] PROGRAM [ARGUMENT...]")
@click.option(
    "-o",
    "--output",
    default="run.zip",
    show_default=True,
    metavar="OUT",
    help="The archive. {rank}, {pid} and {env:NAME} in its name are replaced.",
)
@console.flag("--detail", help="Log at MIOpen's level 6: also solvers and launch lines. The log is twice as large.")
@console.flag(
    "--reference",
    help="Run the program once more without MIOpen's log, to measure idle time and step time.",
)
@click.option("--for", "length", type=SECONDS, metavar="S", help="Profile only S seconds (rocprofv3).")
@click.option("--after", type=SECONDS, metavar="S", help="Start the profiler after S seconds (rocprofv3).")
@click.option(
    "--dvdt", metavar="LIB", help="The libprof.so of dv/dt, for OpenCL. It is preloaded in place of a ROCm profiler."
)
@console.choice_option(
    "--profiler",
    ("auto", "rocprofv3", "rocprof", "none"),
    "auto: rocprofv3 if it is installed, else rocprof if it is, else none.",
)
@console.flag("--dry-run", help="Print the commands as lines of a shell, and run nothing.")
@console.quiet_option
def record(  # noqa: PLR0913 - click gives each option by keyword
    program: tuple[str, ...],
    output: str,
    detail: bool,
    reference: bool,
    length: float | None,
    after: float | None,
    dvdt: str | None,
    profiler: str,
    dry_run: bool,
    quiet: bool,
) -> int:
    """Run a program under a profiler, with MIOpen's log on, and write one archive.

    Uses rocprofv3, else rocprof, else no profiler; with --dvdt the library LIB. Variables that you have set yourself
    stay as they are. PROGRAM's output, signals and exit code pass through. Ctrl-C also leaves an archive. OUT holds the
    output of the program and the profile unchanged. A rocpd profile includes the environment, so do not publish OUT:
    `mio2trace bundle` makes an archive to give away.

    \b
    Examples:
      mio2trace record -- python train.py
      mio2trace record -o run.zip --detail --after 30 --for 10 -- python train.py
      srun -n 8 mio2trace record -o job/{rank}.zip -- python train.py
      mio2trace record --dvdt libprof.so -- caffe time -model net.prototxt -gpu 0
      mio2trace record --dry-run -- python train.py
    """
    from mio2trace import recording
    from mio2trace.notes import OptionError
    from mio2trace.recording import session

    environment = given_environment()
    output = recording.filled_in(output, environment)
    if os.path.splitext(output)[1].lower() != ".zip":
        raise OptionError(f"{output}: expected a name that ends in .zip")
    asked = recording.Asked(program, profiler, dvdt or "", detail, recording.Period(after or 0, length))
    chosen = recording.profiler_for(asked, environment)
    folder = os.path.splitext(output)[0]
    made = recording.plan(asked, chosen, folder, environment)
    if not quiet:
        for line in session.begun(made, detail):
            tell(line)
    if dry_run:
        write(f"{line}\n" for line in made.script(os.path.join(folder, session.LOG)))
        if not quiet:
            if reference:
                tell("these lines do not include --reference: only an archive keeps two runs apart")
            tell(f"next: {session.next_command_of_folder(folder)}")
        return 0
    if shutil.which(program[0]) is None:
        is_there = "/" in program[0] and os.path.exists(program[0])
        said = "cannot be run: it is no file with permission for that" if is_there else "no such program"
        tell(f"mio2trace: {program[0]}: {said}")
        return recording.NOT_STARTED if is_there else recording.NOT_FOUND
    try:
        return session.record(asked, chosen, output, reference=reference, say=(lambda line: None) if quiet else tell)
    except recording.NotStarted as error:
        tell(f"mio2trace: {error}")
        return recording.NOT_STARTED


@click.command(cls=console.Command, no_args_is_help=True)
@click.option("-o", "--output", default="bundle.zip", show_default=True, metavar="OUT", help="The archive.")
@console.flag("--raw", help="Also put the unchanged files in, with all private data.")
@console.flag(
    "--check",
    help="List every word that stayed, except numbers and known names. Read this list before you send the archive.",
)
@console.input_options
def bundle(output: str, raw: bool, check: bool, inputs: console.Inputs) -> None:
    """Write an archive of a run to give away. Text with the form of private data is cut.

    FILEs are the inputs of `mio2trace convert`, or archives of `mio2trace record`. Paths, hosts, users, tokens, command
    line and environment are left out. Names that have no such form stay, such as those of layers: --check lists them.
    Addresses are replaced: equal addresses stay equal. The archive is an input of every command and gives the same
    links as the files. Nothing is sent anywhere.

    \b
    Examples:
      mio2trace bundle run.zip -o bug.zip
      mio2trace bundle run.log run_results.db -o bug.zip --check
    """
    from mio2trace.bundles import kept, make
    from mio2trace.notes import InputError, OptionError
    from mio2trace.snapshot import is_dataset

    if os.path.splitext(output)[1].lower() != ".zip":
        raise OptionError(f"{output}: expected a name that ends in .zip")
    console.refuse_to_overwrite(inputs.files, output)
    dataset = next((file for file in inputs.files if file != "-" and is_dataset(file)), None)
    if dataset is not None:
        raise InputError(f"{dataset}: is a dataset; expected the files of the run, which a bundle holds")
    made = make(inputs.files, output, inputs.options(), raw=raw)
    if check:
        write(f"{one.times:8} {one.word}  ({', '.join(one.members)})\n" for one in kept(output))
    say(made.notes, [], inputs.quiet)
    if inputs.quiet:
        return
    if made.no_trace:
        tell(f"note: no trace in it: {made.no_trace}")
    if raw:
        tell("problem: raw/ holds the unchanged files, with all private data: do not publish this archive")
    stated = [f"{name} {', '.join(values)}" for name, values in made.machine.items() if values]
    missing = [name for name, values in made.machine.items() if not values]
    tell(f"machine: {'; '.join(stated) or 'the files state nothing'}")
    if missing and not made.is_nvidia:
        tell(
            f"not stated: {', '.join(missing)}; name them in your report (rocminfo, rocm version): maintainers ask for"
            " them first"
        )
    tell(f"wrote {output} ({os.path.getsize(output) / 1000:.0f} kB: {', '.join(made.members)})")
