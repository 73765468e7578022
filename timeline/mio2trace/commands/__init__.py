"""Subcommands beside `convert`: options in, a table or lines on standard output, notes on stderr, exit code out."""
