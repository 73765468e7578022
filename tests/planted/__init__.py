"""Files of every format with a canary in every field that can hold text."""

from __future__ import annotations

from tests.planted import kineto, miopen, opencl, rocm, side_files, tensorflow

FORMATS = opencl.FORMATS | miopen.FORMATS | tensorflow.FORMATS | rocm.FORMATS | kineto.FORMATS | side_files.FORMATS
