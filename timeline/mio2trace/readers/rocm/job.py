"""What a profiler records of a process's place in its job: the rank, and the machine that its clock is of.

Of an environment nothing is kept but the rank, of a machine's id nothing but a hash that is only compared.
"""

from __future__ import annotations

import hashlib

import msgspec

_RANKS = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "FLUX_TASK_RANK", "SLURM_PROCID",
)  # fmt: skip
"""What PyTorch, Open MPI, PMIx, MPICH, MVAPICH2, Flux and Slurm set; the nearest to the program first."""
_Environment = msgspec.defstruct("_Environment", [(name, object, None) for name in _RANKS], gc=False)


def rank_in(environment: object) -> int | None:
    """The rank that an environment, a JSON object as text, tells."""
    if not isinstance(environment, str):
        return None
    try:
        variables = msgspec.json.decode(environment, type=_Environment)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    values = (str(value) for name in _RANKS if (value := getattr(variables, name)) is not None)
    return next((int(text) for text in values if text.isascii() and text.isdigit() and len(text) < 8), None)


def scope_of(machine: object) -> str:
    """A machine's id as what may be compared; empty where there is none."""
    if not isinstance(machine, str) or len(machine.strip("0-")) < 8:
        return ""
    return hashlib.blake2b(machine.encode(errors="replace"), digest_size=8, person=b"mio2trace").hexdigest()
