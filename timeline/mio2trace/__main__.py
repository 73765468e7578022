"""``python -m mio2trace`` and the command ``mio2trace``."""

import gc
import signal

_SELDOM = 500_000
"""Objects between two looks of Python's garbage collector (700 by default): modules and records make hardly a cycle."""


def main() -> None:
    """As `mio2trace.cli.main`; an interrupt while that is still being imported ends the program without a traceback."""
    gc.set_threshold(_SELDOM)
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mio2trace import cli

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
