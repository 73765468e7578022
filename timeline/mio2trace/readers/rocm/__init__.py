"""The files of ROCm's profilers: databases, CSV sets, JSON (rocm-profiles.md)."""
