"""Level lines of one launch or one GEMM library call (miopen-log.md 8.3)."""

from __future__ import annotations

from mio2trace.model.miopen import Message
from mio2trace.ops import values
from mio2trace.ops.operation import GemmCall, Launch
from mio2trace.patterns import late

_LAUNCH = late(
    r"(?:kernel_name = )?+([^,]++),(?>.*?global_work_dim = \{)([^}]*+)\}(?:, local_work_dim = \{([^}]*+)\})?"
)
_GEMM_FIELD = late(r"(?<!\w)(\w++) (-?[\w.+]++)")


def launch(message: Message) -> Launch | None:
    """``kernel_name = K, ..., global_work_dim = { x, y, z }, local_work_dim = { a, b, c }``."""
    printed = _LAUNCH.match(message.text)
    if printed is None:
        return None
    return Launch(line=message.line, name=printed[1].strip(), gws=_size3(printed[2]), lws=_size3(printed[3]))


def _size3(text: str | None) -> tuple[int, int, int] | None:
    numbers = values.integers(text or "")
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def gemm_call(message: Message) -> GemmCall | None:
    """``gemm_desc: {isColMajor 0, transA 0, ..., m 64, n 12544, k 147, ...}``."""
    fields = dict(_GEMM_FIELD.findall(message.text.partition("{")[2]))
    names = ("m", "n", "k", "batch_count", "transA", "transB", "isColMajor")
    numbers = {name: values.number(fields.get(name)) for name in names}
    m, n, k = numbers["m"], numbers["n"], numbers["k"]
    if m is None or n is None or k is None:
        return None
    a, b = bool(numbers["transA"]), bool(numbers["transB"])
    if numbers["isColMajor"]:
        m, n, a, b = n, m, b, a  # the same product, read by columns
    return GemmCall(
        line=message.line,
        m=m,
        n=n,
        k=k,
        batch=numbers["batch_count"] or 1,
        trans_a=a,
        trans_b=b,
        sequential=message.function.endswith("Sequential"),
    )


def same_size(first: GemmCall, other: GemmCall) -> bool:
    """Whether two calls multiply matrices of the same sizes."""
    return (first.m, first.n, first.k, first.batch) == (other.m, other.n, other.k, other.batch)
