"""The description of a column or a field: type, unit, meaning, where it is shown, what its text may hold.

A field of a record says both by its annotation: ``name: Name`` is text that privacy looks at as a name
(`mio2trace.privacy.fields`), ``Annotated[int | None, Column(...)]`` is a column wherever `Column.shown` says.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

Kind = Literal["text", "int", "float", "flag"]
Place = Literal["slice", "table", "data"]
"""An argument of slices, a column of the printed table, a column of the dataset (Parquet, SQL, Python)."""
Sort = Literal["layer", "name", "text"]


class Column(NamedTuple):
    """``unit``: what the numbers count, empty for texts and plain counts.

    ``rank``: 0 stays longest on a narrow terminal, 9 goes first; of equals the one further right goes first.
    """

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    rank: int = 5
    shown: frozenset[Place] = frozenset()


class Holds(NamedTuple):
    """What text of a field is. ``layer``: names that may hold slashes of their own (``/block1/conv1``), so that only
    what begins in a folder of the system is a path. ``name``: few distinct ones. ``text``: anything. ``never``: no
    output may show it. ``word``: of a vocabulary that the reader knows, or letters and digits only."""

    what: Sort | Literal["never", "word"]


LayerName = Annotated[str, Holds("layer")]
Name = Annotated[str, Holds("name")]
Text = Annotated[str, Holds("text")]
Hidden = Annotated[str, Holds("never")]
HiddenBytes = Annotated[bytes, Holds("never")]
Word = Annotated[str, Holds("word")]
