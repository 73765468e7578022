"""Regular expressions that are compiled on first use: a run needs few of them.

They are defined at the beginning of their modules and used like compiled expressions.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn")


class Late:
    """An uncompiled expression with the attributes of a compiled one."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[Any]:
        """The compiled expression."""
        made: re.Pattern[Any] = re.compile(self.pattern, self._flags)
        # From now on its methods are attributes of this object, which is as fast as calling them on the expression.
        self.__dict__.update({name: getattr(made, name) for name in _METHODS})
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.compiled, name)


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return the same as `re.compile`, but compile the expression on first use."""
    return cast("re.Pattern[AnyStr]", Late(pattern, flags))
