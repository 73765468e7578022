"""TensorFlow's scope view as its own profiler writes it: lines, numbers, help (tfprof.md 4.6, 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mio2trace.outgoing import visible
from mio2trace.reports.tfprof_scope import PARENT, PLACES, ScopeOptions, Shown, flat

_HELP = {
    "accelerator_micros": "accelerator execution time: Time spent executing on the accelerator. This is normally "
    "measured by the actual hardware library.",
    "bytes": "requested bytes: The memory requested by the operation, accumulatively.",
    "cpu_micros": "cpu execution time: The time from the start to the end of the operation. It's the sum of actual "
    "cpu run time plus the time that it spends waiting if part of computation is launched asynchronously.",
    "device": "device: which device is placed on.",
    "float_ops": "flops: Number of float operations. Note: Please read the implementation for the math behind it.",
    "input_shapes": "input shape: The shape of input tensors",
    "micros": "total execution time: Sum of accelerator execution time and cpu execution time.",
    "occurrence": "occurrence: The number of times it occurs",
    "op_types": "op_types: The attributes of the operation, includes the Kernel name device placed on and "
    "user-defined strings.",
    "output_bytes": "output bytes: The memory that is output from the operation (not necessarily allocated by the "
    "operation)",
    "params": "param: Number of parameters (in the Variable).",
    "peak_bytes": "peak bytes: The peak amount of memory that the operation is holding at some point.",
    "residual_bytes": "residual bytes: The memory not de-allocated after the operation finishes.",
}
_SCOPE_HELP = "scope: The nodes in the model graph are organized by their names, which is hierarchical like filesystem."
_TITLES = {
    "params": "# parameters",
    "float_ops": "# float_ops",
    "bytes": "requested bytes",
    "peak_bytes": "peak bytes",
    "residual_bytes": "residual bytes",
    "output_bytes": "output bytes",
    "micros": "total execution time",
    "accelerator_micros": "accelerator execution time",
    "cpu_micros": "cpu execution time",
    "device": "assigned devices",
    "op_types": "op types",
    "occurrence": "op count (run|defined)",
    "input_shapes": "input shapes",
}


def text(root: Shown, options: ScopeOptions, *, banner: bool = False) -> Iterator[str]:
    """The view as TensorFlow writes it to a file, in lines; with ``banner`` as it prints it to a console."""
    if banner:
        yield from _banner(options)
    yield "\n"
    yield "Doc:\n"
    yield f"{_SCOPE_HELP}\n"
    for name in sorted(options.select):
        for line in ("micros", "cpu_micros", "accelerator_micros") if name == "micros" else (name,):
            yield f"{_HELP[line]}\n"
    yield "\n"
    yield "Profile:\n"
    yield "node name | " + " | ".join(_TITLES[name] for name in _printed(options.select)) + "\n"
    yield _line(root, options)
    for row in flat(root):
        yield _line(row, options)
    if banner:
        yield "\n"
        yield "======================End of Report==========================\n"


def _banner(options: ScopeOptions) -> Iterator[str]:
    minima: dict[str, int] = dict(options.minima)
    values: list[tuple[str, str]] = [("max_depth", str(options.max_depth))]
    for name in ("bytes", "peak_bytes", "residual_bytes", "output_bytes", "micros", "accelerator_micros", "cpu_micros",
                 "params", "float_ops", "occurrence"):  # fmt: skip
        values.append((f"min_{name}", str(minima.get(name, 0))))
    values += [
        ("step", str(-1 if options.step is None else options.step)),
        ("order_by", options.order_by),
        ("account_type_regexes", ",".join(options.account_type_regexes)),
        ("start_name_regexes", ",".join(options.start_name_regexes)),
        ("trim_name_regexes", ",".join(options.trim_name_regexes)),
        ("show_name_regexes", ",".join(options.show_name_regexes)),
        ("hide_name_regexes", ",".join(options.hide_name_regexes)),
        ("account_displayed_op_only", "true" if options.account_displayed_op_only else "false"),
        ("select", ",".join(sorted(options.select))),
        ("output", "stdout:"),
    ]
    yield "\n"
    yield "=========================Options=============================\n"
    for name, value in values:
        yield f"-{name:<27}{value}\n"
    yield "\n"
    yield "==================Model Analysis Report======================\n"


def _printed(select: Sequence[str]) -> Iterator[str]:
    """The columns in the order of print, whatever that of ``select``."""
    for name in ("params", "float_ops", "bytes", "peak_bytes", "residual_bytes", "output_bytes"):
        if name in select:
            yield name
    if "micros" in select:
        yield from ("micros", "accelerator_micros", "cpu_micros")
    else:
        yield from (name for name in ("accelerator_micros", "cpu_micros") if name in select)
    yield from (name for name in ("device", "op_types", "occurrence", "input_shapes") if name in select)


def _line(row: Shown, options: ScopeOptions) -> str:
    fields: list[str] = []
    for name in _printed(options.select):
        node = row.node
        if name == "device":
            if node is not None and node.device:
                fields.append(node.device)
        elif name == "op_types":
            fields.append("|".join(sorted(set(node.op_types))) if node is not None else PARENT)
        elif name == "input_shapes":
            shapes = node.input_shapes if node is not None else ()
            fields.append("|".join(f"{slot}:{'x'.join(map(str, shape)) or 'unknown'}" for slot, shape in shapes))
        elif name == "occurrence":
            pairs = (_pair(row, quantity, count_text) for quantity in ("occurrence", "definitions"))
            fields.append("|".join(pairs))
        elif name in ("params", "float_ops"):
            if name == "params" and node is not None and node.shape:
                fields.append("x".join(map(str, node.shape)))
            fields.append(_pair(row, name, count_text) + (" params" if name == "params" else " flops"))
        elif name.endswith("bytes"):
            fields.append(_pair(row, name, memory_text))
        else:
            fields.append(_pair(row, name, time_text))
    return f"{'  ' * row.ancestors}{visible(row.name)} ({visible(', '.join(fields))})\n"


def _pair(row: Shown, quantity: str, form: Callable[[int], str]) -> str:
    at = PLACES[quantity]
    return f"{'--' if row.own is None else form(row.own[at])}/{form(row.total[at])}"


def time_text(us: int) -> str:
    """As TensorFlow prints a time (tfprof.md 4.6)."""
    if us < 1000:
        return f"{us}us"
    return f"{us / 1000:.2f}ms" if us < 1_000_000 else f"{us / 1_000_000:.2f}sec"


def memory_text(size: int) -> str:
    """As TensorFlow prints bytes: the units are decimal."""
    if size < 1000:
        return f"{size}B"
    return f"{size / 1000:.2f}KB" if size < 1_000_000 else f"{size / 1_000_000:.2f}MB"


def count_text(number: int) -> str:
    """As TensorFlow prints a count: thousands k, millions m, billions b."""
    if number < 1000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1000:.2f}k"
    return f"{number / 1_000_000:.2f}m" if number < 1_000_000_000 else f"{number / 1_000_000_000:.2f}b"
