"""Subcommands: each reads options, prints a table or lines on standard output and notes on stderr, and sets the exit
code.

The module of a command is loaded when the command is called.
"""

from __future__ import annotations

import importlib

import click


class Later(click.Command):
    """A command whose module is loaded when it is called. The help that lists all commands needs only their
    descriptions."""

    def __init__(self, name: str, about: str, module: str = "") -> None:
        super().__init__(name, help=about)
        self._module = f"mio2trace.commands.{module or name}"

    def loaded(self) -> click.Command:
        command: click.Command = getattr(importlib.import_module(self._module), str(self.name))
        return command


LATER = (
    Later("convert", "Write a trace for the Perfetto UI, or print the answer (without -o)."),
    Later("record", "Run a program under a profiler, with MIOpen's log on, and write one archive.", "share"),
    Later("bundle", "Write an archive of a run to give away. Text with the form of private data is cut.", "share"),
    Later("report", "Show where the time of a run went and what to do about it."),
    Later(
        "ops",
        "List the operations of MIOpen logs or PyTorch traces; with the profile of the run slowest first, by layer.",
        "tables",
    ),
    Later(
        "driver",
        "Print commands that run operations again: for MIOpenDriver, and for a BLAS bench (PyTorch's GEMMs).",
        "tables",
    ),
    Later("kernels", "List the kernels of a profile, one row each, or summed.", "tables"),
    Later(
        "layers",
        "List the layers of a run, slowest first: kernel time per steady iteration, host time, printed time, FLOPs.",
        "tables",
    ),
    Later("messages", "Show errors, warnings, searches, workspaces and problems in MIOpen's logs.", "tables"),
    Later("compare", "Show what became slower between runs, whether that is real, and why."),
    Later("inspect", "Print the records of FILEs as JSON lines, as the readers understood them.", "tables"),
    Later("tfprof", "Print memory and times of TensorFlow 1's ops, as mean and variation over the steps."),
    Later("view", "Open a trace in the Perfetto UI, at its slowest layer."),
    Later("batch", "Convert all runs in folders to one dataset of Parquet files, with any number of workers."),
    Later("merge", "Write one trace for all ranks of a job.", "report"),
    Later("ranks", "Show which ranks of a job wait at collectives, which rank comes last, and why.", "report"),
    Later("query", "Ask a trace or a run: a stored query by its name, or any SQL."),
    Later("mcp", "Serve agents by the Model Context Protocol (MCP) on standard input and output."),
    Later("doctor", "Show what is installed on this machine, and what is missing."),
    Later("completion", "Print shell code that completes commands, options, columns and queries.", "doctor"),
)
