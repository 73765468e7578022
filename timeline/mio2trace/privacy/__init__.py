"""What must not reach an output: a trace is made to be published (docs/privacy.md).

It is applied once, to the records of all inputs, before anything is made of them. Text that the records do not hold
cannot be in an output. Two sorts of text fields are told apart (`fields`): those that an output may show are cleaned,
the others are never shown: handles and arguments, which join calls, program sources, build options.

Found by their form: absolute paths, URLs, ``user@host``, host names with a known domain, addresses, pointers,
``NAME=value`` of an environment, passwords and tokens. User and host names without a form are learned from the inputs'
first bytes: glog's "Running on machine", a shell's prompt, home folders.
"""

from __future__ import annotations

from mio2trace.privacy.cleaner import Cleaner
from mio2trace.privacy.rules import KINDS

__all__ = ["KINDS", "Cleaner"]
