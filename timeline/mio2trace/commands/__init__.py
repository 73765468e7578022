"""Subcommands: options in, a table or lines on standard output, notes on stderr, exit code out.

A command's module is loaded when the command is called.
"""

from __future__ import annotations

import importlib

import click


class Later(click.Command):
    """A command whose module is loaded when it is called: help on all of them needs what each does in a line."""

    def __init__(self, name: str, about: str, module: str = "") -> None:
        super().__init__(name, help=about)
        self._module = f"mio2trace.commands.{module or name}"

    def loaded(self) -> click.Command:
        command: click.Command = getattr(importlib.import_module(self._module), str(self.name))
        return command


LATER = (
    Later("convert", "Write a trace for the Perfetto UI; without -o, print the answer."),
    Later("record", "Run a program under a profiler, with MIOpen's log on, into one archive.", "share"),
    Later("bundle", "One archive of a run to give away, without what is private.", "share"),
    Later("report", "Show where the time of a run went and what to do about it."),
    Later("ops", "The operations of MIOpen logs, one row each; with the profile of the run slowest first, by layer."),
    Later("driver", "Print lines that run operations again: MIOpenDriver's, and a BLAS bench's for PyTorch's GEMMs."),
    Later("kernels", "The kernels of a profile, one row each, or summed."),
    Later(
        "layers",
        "The layers of a run, slowest first: kernel time of a steady iteration, host time, printed time, FLOPs.",
    ),
    Later("messages", "Show errors, warnings, searches, workspaces and problems in MIOpen's logs."),
    Later("compare", "Show what became slower between runs, whether that is real, and why."),
    Later("inspect", "The records of FILEs as JSON lines: what the readers understood."),
    Later("tfprof", "Memory and times of TensorFlow 1's ops, as mean and variation over the steps."),
    Later("view", "Open a trace in the Perfetto UI, its kernels pinned and its slowest layer in view."),
    Later("batch", "All runs in folders as one dataset of Parquet files, on as many workers as there are."),
    Later("merge", "The ranks of a job in one picture.", "ranks"),
    Later("ranks", "Who waits at the collectives of a job, who comes last, and what made it late."),
    Later("query", "Ask a trace, or a run: a query by its name, or any SQL."),
    Later("mcp", "Serve agents by the Model Context Protocol (MCP) on standard input and output."),
    Later("doctor", "Show what is installed on this machine, and what is missing."),
    Later("completion", "Lines for a shell that complete commands, options, columns and queries.", "doctor"),
)
