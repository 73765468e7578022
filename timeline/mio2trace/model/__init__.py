"""Neutral records: the content of the sources, before any conclusion.

Times are integer nanoseconds on the clock named in the field. ``host`` is Unix time in UTC. ``device`` counts from an
arbitrary zero of the device. ``LocalTime`` is a wall clock whose zone (and perhaps year) is not recorded. Every record
has its origin. ``source`` is the position of its file among the inputs, ``line`` the 1-based line (0 if the source has
no lines), ``call_index`` the position in the profile's array of calls.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

# -- The description of a column or a field: type, unit, meaning, where it is shown, and what its text may contain -----
#
# The annotation of a record's field has this description. ``name: Name`` is text that the privacy rules treat as a name
# (`mio2trace.privacy`). ``Annotated[int | None, Column(...)]`` is a column in every output that `Column.shown`
# lists.

Kind = Literal["text", "int", "float", "flag"]
Place = Literal["slice", "table", "data"]
"""Outputs: arguments of slices, columns of a printed table, columns of the dataset (Parquet, SQL, Python)."""
Sort = Literal["layer", "name", "text"]


class Column(NamedTuple):
    """A column. ``unit``: the unit of its numbers; empty for texts and counts. ``rank``: the order in which a narrow
    terminal drops columns: 9 first, 0 last; of equal ranks the right one first."""

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    rank: int = 5
    shown: frozenset[Place] = frozenset()


class Holds(msgspec.Struct, frozen=True):
    """The content of a text field. ``layer``: names that may contain slashes (``/block1/conv1``), so only a name that
    begins with a folder of the system counts as a path. ``name``: a few distinct names. ``text``: anything. ``never``:
    no output may show it. ``word``: a word that the reader knows, or only letters and digits."""

    what: Sort | Literal["never", "word"]


LayerName = Annotated[str, Holds("layer")]
Name = Annotated[str, Holds("name")]
Text = Annotated[str, Holds("text")]
Hidden = Annotated[str, Holds("never")]
HiddenBytes = Annotated[bytes, Holds("never")]
Word = Annotated[str, Holds("word")]
