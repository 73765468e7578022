"""Files of every format with a canary in every field that can hold text."""

from __future__ import annotations

from tests.planted import kineto, miopen, opencl, rocm, tensorflow

FORMATS = opencl.FORMATS | miopen.FORMATS | tensorflow.FORMATS | rocm.FORMATS | kineto.FORMATS
