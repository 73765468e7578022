"""Files of ROCm's profilers with a canary in every text, those included that no reader takes: environment, command,
host, machine, arguments of calls, descriptions of the machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.rocm_made import FORMS, Run, run


def _of(form: Callable[[Run], list[bytes]], canary: str) -> list[bytes]:
    return form(run(canary))


FORMATS: dict[str, Callable[[str], list[bytes]]] = {name: partial(_of, form) for name, form in FORMS.items()}
