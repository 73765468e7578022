"""Load numpy without the threads that it starts for algebra: nothing here is algebra, and they cost 0.07 s of CPU time.

The variable that says so is taken back, because `mio2trace record` hands the environment on to a program of the user's.
"""

import os

_VARIABLE = "OPENBLAS_NUM_THREADS"
if _VARIABLE not in os.environ:
    os.environ[_VARIABLE] = "1"
    import numpy  # noqa: F401

    del os.environ[_VARIABLE]
