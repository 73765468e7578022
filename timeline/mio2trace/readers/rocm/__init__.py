"""What ROCm's profilers write: databases, CSV sets, JSON (rocm-profiles.md)."""
