"""Answers to the stored queries of a dataset, counted again in plain Python from the rows of its tables."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

Row = dict[str, Any]
Rows = list[Row]
Tables = dict[str, Rows]
SEVERITIES = ("high", "medium", "low", "info")


def by(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], Rows]:
    found: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for row in rows:
        found[tuple(row[column] for column in columns)].append(row)
    return found


def known(rows: Iterable[Row], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def joined(rows: Iterable[Row], column: str) -> str | None:
    return ", ".join(sorted(set(known(rows, column)))) or None


def quarter(values: Sequence[float], part: int) -> float:
    """Return a quartile of the values; between two values it lies on a line."""
    ordered = sorted(values)
    at = part * (len(ordered) - 1) / 4
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def runs_in(rows: Rows) -> int:
    """The ranks of a job are one run."""
    return len({one["run"] for one in rows})


def runs(tables: Tables) -> Rows:
    problems = by(tables["problems"], "run", "rank")
    rows = []
    for run in tables["runs"]:
        own = problems.get((run["run"], run["rank"]), [])
        slowest = max(
            (one for one in own if one["kernel_ns"] is not None), key=lambda one: one["kernel_ns"], default={}
        )
        if run["state"] != "failed":
            rows.append({
                **{name: run[name] for name in ("run", "rank", "version", "device", "iterations", "kernels")},
                "kernel_ms": ms(run["kernel_ns"]),
                "find_percent": 100 * run["find_ns"] / run["whole_ns"] if run["whole_ns"] else None,
                "slowest_problem": slowest.get("problem"),
                "percent_of_kernel_time": max(known(own, "percent_of_kernel_time"), default=None),
            })  # fmt: skip
    return rows


def slowest_problems(tables: Tables) -> Rows:
    groups = by((one for one in tables["problems"] if (one["kernel_ns"] or 0) > 0), "problem")
    return [
        {
            "problem": problem, "runs": runs_in(own), "kernel_ms": ms(middle(known(own, "kernel_ns"))),
            "least_ms": ms(min(known(own, "kernel_ns"))), "most_ms": ms(max(known(own, "kernel_ns"))),
            "slowest_run": max(own, key=lambda one: one["kernel_ns"])["run"],
            "percent_of_kernel_time": middle(known(own, "percent_of_kernel_time")),
            "calls": middle(known(own, "calls")), "gflops": middle(known(own, "gflops")),
            "solvers": joined(own, "solver"), "command": next(iter(known(own, "command")), None),
        }
        for (problem,), own in groups.items()
    ]  # fmt: skip


def is_clear(before: Rows, after: Rows, runs: int) -> bool | None:
    """Whether most runs are slower than most before, by more than few runs scatter, at as many calls an iteration."""
    if runs < 3:
        return None
    was, now = (known(rows, "kernel_ns") for rows in (before, after))
    least = 1.1 if runs < 5 else 1.05 if runs < 12 else 1
    same = middle(known(before, "calls")) == middle(known(after, "calls"))
    return bool(same and quarter(now, 1) > quarter(was, 3) and median(now) > least * median(was))


def regressions(tables: Tables) -> Rows:
    of_run = {(run["run"], run["rank"]): run for run in tables["runs"]}
    ran = [
        one | {key: of_run[one["run"], one["rank"]][key] for key in ("device", "version")}
        for one in tables["problems"]
        if (one["kernel_ns"] or 0) > 0 and (one["run"], one["rank"]) in of_run
    ]
    rows = []
    for (problem, device), own in by((one for one in ran if one["version"]), "problem", "device").items():
        versions = by(own, "version")
        order = sorted(versions, key=lambda key: ([int(part) for part in re.findall("[0-9]+", key[0])], key[0]))
        for before, after in itertools.pairwise(order):
            was, now = (known(versions[key], "kernel_ns") for key in (before, after))
            each = [runs_in(versions[key]) for key in (before, after)]
            if median(now) > 1.02 * median(was):
                rows.append({
                    "problem": problem, "before": before[0], "version": after[0], "device": device,
                    "before_ms": ms(median(was)), "kernel_ms": ms(median(now)), "ratio": median(now) / median(was),
                    "costs_ms": ms(median(now) - median(was)), "runs": f"{each[0]} / {each[1]}",
                    "clear": is_clear(versions[before], versions[after], min(each)),
                    "before_solvers": joined(versions[before], "solver"), "solvers": joined(versions[after], "solver"),
                })  # fmt: skip
    return rows


def heat_map(tables: Tables) -> Rows:
    timed = [
        one | {"ns": one["kernel_ns"] if one["step_ns"] is None else one["step_ns"]}
        for one in tables["iterations"]
        if (one["kernels"] or 0) > 0
    ]
    rows = []
    for (run, rank), own in by(timed, "run", "rank").items():
        steady = [one["ns"] for one in timed if one["run"] == run and one["steady"]]
        least, most = min(steady), max(steady)
        places = [min(max((one["ns"] - least) / max(most - least, 1), 0), 1) for one in own]
        heat = dict(zip((one["iteration"] for one in own), places, strict=True))
        slowest = max(own, key=lambda one: one["ns"])
        rows.append({
            "run": run, "rank": rank, "iterations": len(own), "slowest": slowest["iteration"],
            "median_ms": ms(middle([one["ns"] for one in own if one["steady"]])), "slowest_ms": ms(slowest["ns"]),
            "heat": "".join("▁▂▃▄▅▆▇█"[round(7 * heat[at])] for at in sorted(heat)),
        })  # fmt: skip
    return rows


def outlier_runs(tables: Tables) -> Rows:
    problems = by(tables["problems"], "run", "rank")
    groups: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for run in tables["runs"]:
        if run["kernel_ns"] is not None:
            own = problems.get((run["run"], run["rank"]))
            work = (
                frozenset(known(own, "problem")) if own else (run["kernels"], run["layers"], run["steady_iterations"])
            )
            groups[work, run["device"], run["version"]].append(run)
    rows = []
    for own in groups.values():
        usual = median(known(own, "kernel_ns"))
        spread = max(1.4826 * median([abs(one["kernel_ns"] - usual) for one in own]), 0.002 * usual, 1)
        for one in own:
            off = one["kernel_ns"] - usual
            if len(own) >= 4 and abs(off) > (3.5 + 14 / len(own)) * spread:
                rows.append({
                    **{name: one[name] for name in ("run", "rank", "version", "device")}, "runs": runs_in(own),
                    "kernel_ms": ms(one["kernel_ns"]), "usual_ms": ms(usual), "ratio": one["kernel_ns"] / usual,
                    "deviations": off / spread,
                })  # fmt: skip
    return rows


def what_is_odd(tables: Tables) -> Rows:
    rows = []
    for (rule,), own in by(tables["findings"], "id").items():
        worst = min(own, key=lambda one: (SEVERITIES.index(one["severity"]), -(one["ns"] or 0), one["run"]))
        rows.append({
            "id": rule, "severity": worst["severity"], "runs": runs_in(own),
            "ms": ms(sum(known(own, "ns"))), "worst_run": worst["run"], "worst_ms": ms(worst["ns"]),
            "median_percent_at_stake": 100 * median(known(own, "share")), "advice": worst["try"],
        })  # fmt: skip
    return rows


def kernels_of_runs(tables: Tables) -> Rows:
    whole = sum(known(tables["kernels"], "kernel_ns"))
    return [
        {
            "kernel": name, "calls": len(own), "runs": runs_in(own),
            "kernel_ms": ms(sum(known(own, "kernel_ns"))),
            "percent_of_kernel_time": 100 * sum(known(own, "kernel_ns")) / whole,
            "mean_us": sum(known(own, "kernel_ns")) / len(own) / 1e3, "longest_us": max(known(own, "kernel_ns")) / 1e3,
        }
        for (name,), own in by(tables["kernels"], "name").items()
    ]  # fmt: skip


def layers_of_runs(tables: Tables) -> Rows:
    counted = [one for one in tables["layers"] if one["iteration"] is None or one["iteration"] > 0]
    of_layer: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for (run, _, layer, direction), own in by(counted, "run", "rank", "layer", "direction").items():
        times = [one["printed_ns"] if one["kernel_ns"] is None else one["kernel_ns"] for one in own]
        ns = middle([time for time in times if time is not None])
        if ns is not None:
            of_layer[layer, direction].append({"run": run, "ns": ns, "gflops": middle(known(own, "gflops"))})
    return [
        {
            "layer": layer, "direction": direction, "runs": runs_in(own), "kernel_ms": ms(middle(known(own, "ns"))),
            "least_ms": ms(min(known(own, "ns"))), "most_ms": ms(max(known(own, "ns"))),
            "slowest_run": max(own, key=lambda one: one["ns"])["run"], "gflops": middle(known(own, "gflops")),
        }
        for (layer, direction), own in of_layer.items()
    ]  # fmt: skip


def stragglers(tables: Tables) -> Rows:
    same = "run", "rank", "collectives", "times_arrived_last", "made_late_by"
    times = "transfer", "wait", "late", "made_late"
    return [
        {name: one[name] for name in same} | {f"{name}_ms": ms(one[f"{name}_ns"]) for name in times}
        for one in tables["ranks"]
    ]


ANSWERS: dict[str, Callable[[Tables], Rows]] = {
    "runs": runs, "slowest problems": slowest_problems, "regressions": regressions, "heat map": heat_map,
    "outlier runs": outlier_runs, "what is odd": what_is_odd, "kernels of runs": kernels_of_runs,
    "layers of runs": layers_of_runs, "stragglers": stragglers,
}  # fmt: skip
"""By query; of failures, which come from the journal, a test counts by hand."""
