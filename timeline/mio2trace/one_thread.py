"""Keeps numpy from starting threads for algebra, of which nothing here is: they cost 0.1 s of processor time.

`__main__` imports this before anything else, because numpy reads the variable when it is loaded.
"""

import os

_VARIABLE = "OPENBLAS_NUM_THREADS"
_ours = _VARIABLE not in os.environ
os.environ.setdefault(_VARIABLE, "1")


def given_environment() -> dict[str, str]:
    """Return the environment as the person set it, for the programs that the person starts through this one."""
    return {name: value for name, value in os.environ.items() if not (_ours and name == _VARIABLE)}
