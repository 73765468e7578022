"""``python -m mio2trace`` and the command ``mio2trace``."""

import gc
import signal

_SELDOM = 500_000
"""Allocations between two runs of Python's garbage collector (default 700): modules and records make hardly any
cycle."""


def main() -> None:
    """Run `mio2trace.cli.main`. An interrupt during its import ends the program without a traceback."""
    gc.set_threshold(_SELDOM)
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mio2trace import machine  # noqa: F401 - before numpy is loaded

    # isort: split
    from mio2trace import cli

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
