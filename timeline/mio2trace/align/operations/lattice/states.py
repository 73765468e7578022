"""What a way is in after a kernel; a state is 16 * (operation + 1) + this, the operation is the last one begun."""

from __future__ import annotations

OUT, GONE, LONG, HELPERS, MAIN, WAITING = range(6)
GEMM = 8
"""Set where a GEMM was among the call's kernels."""
STATES, PHASE = 16, 7
BEFORE = OUT
"""The state before the first operation."""
