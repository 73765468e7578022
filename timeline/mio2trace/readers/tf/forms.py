"""The forms in which TensorFlow's profiles are found, for who wants no other."""

from __future__ import annotations

from mio2trace.readers.base import Reader
from mio2trace.readers.tf import profile_proto, run_metadata, step_stats_text, timeline_json, views

FORMS: tuple[Reader, ...] = (profile_proto, run_metadata, step_stats_text, timeline_json, views)
"""At most one of them recognises a file; the op view of a console's text is recognised by none."""
EXPECTED = "a TFProf profile, RunMetadata, StepStats, TensorFlow's timeline or a printed view"
