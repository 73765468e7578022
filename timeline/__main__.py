"""``python -m timeline``."""

from timeline.cli import main

if __name__ == "__main__":
    main()
