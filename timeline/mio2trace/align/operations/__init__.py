"""Kernels to operations: each queue's best path, its evidence, what is in doubt (alignment.md; miopen-log.md 10)."""
