"""Keep private data out of outputs: a trace is made to be published (docs/privacy.md).

The rules are applied once, to the records of all inputs, before anything is made from them. Text that the records do
not hold cannot reach an output. There are two kinds of text fields (`fields`). Fields that an output may show are
cleaned. All others are never shown: handles and arguments (which join calls), program sources, build options.

Private text is found by its form: absolute paths, URLs, ``user@host``, host names with a known domain, addresses,
pointers, ``NAME=value`` of an environment, passwords and tokens. User and host names have no special form. They are
learned from the first bytes of the inputs: glog's "Running on machine", the prompt of a shell, home folders.
"""

from __future__ import annotations

from mio2trace.privacy.cleaner import Cleaner
from mio2trace.privacy.rules import KINDS

__all__ = ["KINDS", "Cleaner"]
