"""The notebook of CK's dashboards runs, on the real records and on what the repository has; it is committed empty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import mio2trace
from tests.conftest import ROOT

NOTEBOOK = ROOT / "examples" / "ck_dashboards.ipynb"


def executed(monkeypatch: pytest.MonkeyPatch, **environment: str) -> list[Any]:
    """The cells with their outputs. Raises where one fails."""
    for name in ("MIO2TRACE_CK", "MIO2TRACE_RUN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environment, "PYTHONPATH": str(ROOT / "timeline")}.items():
        monkeypatch.setenv(name, value)
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any, kind: str) -> str:
    return "".join(output.get("data", {}).get(kind, "") for output in cell.outputs)


def test_the_notebook_is_committed_without_outputs() -> None:
    """Nobody's records, no path, no time of a run are in it."""
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    for cell in notebook["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.shared
def test_the_dashboards_of_the_real_records(monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    """Layers by library and batch of ten records; kernels of ten iterations; the report in the cell."""
    sample = shared / "samples" / "miopen-opencl" / "m290-alexnet-infer-10it"
    cells = executed(
        monkeypatch,
        MIO2TRACE_CK=str(shared / "samples" / "ck"),
        MIO2TRACE_RUN=f"{sample / 'run.log'}:{sample / 'prof.json'}",
    )
    assert shown(cells[0], "text/plain") == "10"
    by_library = shown(cells[2], "text/html")
    for entry, batch in (("bvlc-alexnet-opencl-clblast", 10), ("bvlc-googlenet-opencl-clblast", 2)):
        assert entry in by_library
        assert f">{batch}<" in by_library
    assert "conv1" in shown(cells[3], "text/html")
    assert "srcdoc" in shown(cells[4], "text/html")
    assert "MIOpenCDFGen" in shown(cells[5], "text/html"), "kernels by repetition"
    assert "Conv fwd" in shown(cells[6], "text/html")


def test_the_dashboards_of_what_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any record, on the run in traces/: layers, kernels, GEMMs of known sizes."""
    cells = executed(monkeypatch, MIO2TRACE_CK=str(tmp_path))
    assert "relu2" in shown(cells[3], "text/html")
    assert "Xgemm" in shown(cells[5], "text/html")
    run = mio2trace.load(*(ROOT / "traces" / "alexnet-b1-train" / name for name in ("run.log", "prof.json.gz")))
    largest = max((row for row in run.kernels if row["M"]), key=lambda row: row["M"] * row["N"] * row["K"])
    assert f"<th>{largest['M']}</th>" in shown(cells[7], "text/html")
