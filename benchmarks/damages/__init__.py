"""Runs with their truth, damaged as real ones are: log, profile and truth changed alike.

A mutation takes a run and a random source and gives the run that would have been recorded, or the reason why that
cannot be expressed for this one.
"""

from __future__ import annotations

from benchmarks.damages.handles import recycled
from benchmarks.damages.losses import cut_log, late_log, longer_log, longer_profile, lost_entries
from benchmarks.damages.run import Mutation

MUTATIONS: dict[str, Mutation] = {
    "5 % of entries lost": lost_entries,
    "log from the middle": late_log,
    "last fifth missing": cut_log,
    "iterations only in the log": longer_log,
    "iterations only in the profile": longer_profile,
    "handles recycled": recycled,
}
SEEDLESS = ("iterations only in the log", "iterations only in the profile")
THREADS = "two threads"
ANOTHER = "another run's profile"
