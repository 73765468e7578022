"""Findings of a run: one table of rules, each with a threshold and an advice.

docs/findings.md describes each rule. No rule fires for an effect that the profiler itself caused.
"""

from __future__ import annotations

from mio2trace.findings import kernels, pauses, trust
from mio2trace.findings.rule import SEVERITIES, Finding, Found, Rule, Severity, severity_of
from mio2trace.findings.subject import GPUS, Gpu, Problem, Subject, gpu_of

__all__ = [
    "GPUS", "RULES", "SEVERITIES", "Finding", "Found", "Gpu", "Problem", "Rule", "Severity", "Subject", "findings",
    "gpu_of",
]  # fmt: skip

RULES: tuple[Rule, ...] = (*kernels.RULES, *pauses.RULES, *trust.RULES)


def findings(subject: Subject) -> list[Finding]:
    """Return the findings of all rules: most severe first, then costs before gaps in the evidence, then by time at
    stake, then in the order of the table."""
    # No finding is `high` if it rests on the warm-up, on set-up without known iterations, or on a part of the rows.
    certain = subject.has_iterations and not subject.steady.told.may_be_cold and not subject.is_filtered
    step = subject.timed.step_time
    fired = []
    for rule in RULES:
        for found in rule.find(subject):
            severity = found.severity or severity_of(found.share)
            if severity == "high" and not certain:
                severity = "medium"
            if severity is not None and found.ns is not None and step is not None and step.step_ns:
                # A large part of the kernel time may be a small part of a step in which the GPU is mostly idle.
                of_step = severity_of(found.ns / step.step_ns) or "low"
                severity = max(severity, of_step, key=SEVERITIES.index)
            if severity is not None:
                fired.append(Finding(rule=rule, severity=severity, found=found))
    return sorted(
        fired, key=lambda one: (SEVERITIES.index(one.severity), one.rule.is_of_evidence, -(one.found.ns or 0))
    )
