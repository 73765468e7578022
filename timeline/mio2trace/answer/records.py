"""The findings as JSON, for programs: an array of records (docs/findings.md)."""

from __future__ import annotations

import orjson

from mio2trace.answer.content import Report
from mio2trace.outgoing import json_text


def records(report: Report) -> str:
    """``run`` says whose a finding is where there are several."""
    found = [
        {**({"run": section.name} if report.several else {}), **finding.record()}
        for section in report.sections
        for finding in section.findings
    ]
    return json_text(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()) + "\n"
