"""Make the pictures of what a user sees first of runs, to be looked at.

    python -m benchmarks.pictures -o DIR RUN...

RUN: the files of a run, with commas between them. For each run this writes to DIR:

* the answer on terminals of 80 and 120 columns (``NAME-80.txt``),
* the page on wide and narrow screens, light and dark (``NAME-400-dark.png``),
* the first view of the trace in the Perfetto UI (``NAME-perfetto.png``).

One line for each run has the widths of the page and the complaints of the UI. It needs the test dependencies and a
Chromium.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "timeline")]

from tests.perfetto_tools.perfetto_ui import PerfettoUI  # noqa: E402

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SCREENS = [(width, scheme) for width in (1280, 400) for scheme in SCHEMES]
PROGRAM = [sys.executable, "-m", "mio2trace"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="the folder of the pictures")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the files of a run, with commas between them")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    with PerfettoUI(size=(1400, 900), timeout=300) as ui:
        for number, run in enumerate(args.runs, 1):
            files = run.split(",")
            name = args.output / f"{number:02}-{Path(files[0]).name.partition('.')[0]}"
            print(name.name, *looked_at(ui, files, name), sep=": ", flush=True)
    return 0


def looked_at(ui: PerfettoUI, files: Sequence[str], name: Path) -> tuple[str, str]:
    """Write the pictures of a run. Return (the widths of its page, complaints)."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path[:2])}
    for columns in (80, 120):
        done = subprocess.run(
            [*PROGRAM, *files], env=environment | {"COLUMNS": str(columns)}, text=True, capture_output=True, check=True
        )
        name.with_name(f"{name.name}-{columns}.txt").write_text(done.stdout + done.stderr, "utf-8")
    trace, page = (name.with_name(f"{name.name}{suffix}") for suffix in (".pftrace", ".html"))
    for words in (["convert", *files, "-o", str(trace)], ["report", *files, "-o", str(page)]):
        subprocess.run([*PROGRAM, *words, "--quiet"], env=environment, check=True, stderr=subprocess.PIPE)
    widths = []
    for width, scheme in SCREENS:
        context = ui.chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        shown = context.new_page()
        shown.goto(page.resolve().as_uri())
        shown.screenshot(path=name.with_name(f"{name.name}-{width}-{scheme}.png"))
        widths.append(f"{shown.evaluate('document.documentElement.scrollWidth')} of {width}")
        context.close()
    ui.open(str(trace))
    ui.page.screenshot(path=name.with_name(f"{name.name}-perfetto.png"))
    return f"page {', '.join(widths)}", f"complaints {'; '.join(ui.problems) or 'none'}"


if __name__ == "__main__":
    sys.exit(main())
