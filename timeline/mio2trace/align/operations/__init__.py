"""Kernels to operations: the alignment of each queue (alignment.md; miopen-log.md 10)."""
