"""Names that fit into a column and differ where what they name does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mio2trace.answer.content import OperationRow
from mio2trace.answer.names import shown_names

TEXTS = st.text("abcdefxyz0123_. ->", min_size=1, max_size=90)


def row(name: str, layer: str) -> OperationRow:
    return OperationRow(name=name, layer=layer, calls=1, ns=1, share=0.1)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5, unique=True), st.integers(30, 60))
def test_operations_of_several_layers_differ(parts: list[tuple[str, str]], width: int) -> None:
    """Also where neither the operation's name nor its layer fits."""
    names = shown_names([row(*one) for one in parts], width)
    assert len({*names}) == len(parts)
    assert all(len(name) <= width for name in names)


def test_the_layer_is_shown_where_operations_read_the_same() -> None:
    rows = [row("Gemm 15360x4096 -> 15360x24576", f"MergedColumnParallelLinear_{number}") for number in (0, 15)]
    assert shown_names(rows, 40) == [
        "Gemm 15360x40... in Merged...lelLinear_0",
        "Gemm 15360x40... in Merged...elLinear_15",
    ]
