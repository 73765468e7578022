"""Regular expressions that are compiled when they are used first: a run needs few of those that the program knows.

They stand where their modules begin, as compiled ones do, and are used alike.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn")


class Late:
    """Stands for an expression, and has its attributes."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[Any]:
        """The expression itself."""
        made: re.Pattern[Any] = re.compile(self.pattern, self._flags)
        # From now on its methods are found here, as fast as there.
        self.__dict__.update({name: getattr(made, name) for name in _METHODS})
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.compiled, name)


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but not before it is used."""
    return cast("re.Pattern[AnyStr]", Late(pattern, flags))
