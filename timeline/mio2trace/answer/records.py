"""The report as one JSON document for programs: the same numbers as in the answer block, with units in their names.

docs/report.schema.json is its schema. Unknown numbers are null. A new key does not change the version. Removing a key,
or changing its meaning, raises `VERSION`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from mio2trace.answer.content import LayerRow, ListRow, OperationRow, ProblemRow, Report, Rest, Section
from mio2trace.measures.step_time import PARTS
from mio2trace.outgoing import json_text

VERSION = 1


def records(report: Report) -> str:
    """The document, indented."""
    document = {
        "schema": VERSION,
        "generator": report.generator,
        "title": report.title,
        "inputs": list(report.inputs),
        "notes": list(report.notes),
        "left_out_runs": report.left_out,
        "runs": [_run(section) for section in report.sections],
    }
    return json_text(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()) + "\n"


def _run(section: Section) -> dict[str, Any]:
    step = section.step
    complete = section.completeness
    return {
        "name": section.name,
        "machine": section.machine or None,
        "verdict": section.verdict,
        "completeness": None if complete is None else {"complete": complete.complete, "counts": dict(complete.counts)},
        "steady_iterations": section.iterations,
        "kernel_ns": section.kernel_ns,
        "copy_ns": section.copy_ns,
        "step": None if step is None else {**step.record(), "length_of_each_ns": list(step.steps_ns)},
        "recording": None
        if section.recording is None
        else {"length_ns": section.recording.length_ns}
        | {f"{name}_ns": getattr(section.recording, f"{name}_ns") for name in PARTS},
        "idle": [
            {
                "why": one.why,
                "gaps": one.count,
                "ns": one.ns,
                "longest_gap_ns": one.longest_ns,
                "during": [{"name": n, "ns": ns} for n, ns in one.during],
            }
            for one in section.causes
        ],
        "layers": _listed(section, section.layers, section.no_layer),
        "operations": _listed(section, section.operations, None),
        "problems": _listed(section, section.problems, section.no_operation),
        "kernels": _listed(section, section.kernels, None),
        "findings": [finding.record() for finding in section.findings],
        "log": [{"level": level, "count": number, "text": text} for level, number, text in section.log],
    }


def _listed(section: Section, rows: Sequence[ListRow], rest: Rest | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        cells: dict[str, Any] = {"name": row.name, "ns": row.ns, **_shares(section, row.ns)}
        if isinstance(row, LayerRow):
            cells["direction"] = row.direction or None
        else:
            cells["calls"] = row.calls
        if isinstance(row, OperationRow):
            cells["layer"] = row.layer or None
        if isinstance(row, ProblemRow):
            cells |= {
                "primitive": row.primitive, "solver": row.solver or None, "gflops": row.gflops,
                "command": row.driver or None,
            }  # fmt: skip
        found.append(cells)
    if rest is not None:
        found.append({"name": None, "outside": rest.name, "ns": rest.ns, **_shares(section, rest.ns)})
    return found


def _shares(section: Section, ns: int | None) -> dict[str, float | None]:
    def percent(whole: int | None) -> float | None:
        return None if ns is None or not whole else round(100 * ns / whole, 3)

    return {"percent_of_kernel_time": percent(section.kernel_ns), "percent_of_step": percent(section.whole_step_ns)}
