"""``python -m mio2trace``."""

from mio2trace.cli import main

if __name__ == "__main__":
    main()
