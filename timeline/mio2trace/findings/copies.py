"""The rule on copies that nothing runs beside: their directions, and the advice that fits the longest one."""

from __future__ import annotations

from collections.abc import Iterator

from mio2trace.findings.rule import Found, Rule, ms
from mio2trace.findings.subject import Subject
from mio2trace.measures.device_time.busy import Exposed, exposed_copies
from mio2trace.outgoing import count

COPIES = 0.05
SHOWN = 0.1
"""The sentence names a direction if it has at least this part of the time of the first one."""
LEAST_SPEED = 0.01
"""GB/s: below it a copy's time is not that of its bytes, and the number says nothing."""
LARGE_BYTES = 1 << 20
"""Copies of at least this mean size take the time of their bytes: to join several does not help."""
MOSTLY = 0.5
"""Copies block the host if the calls of this part of their time do. Copies of pageable memory block it in any call."""
_OF_BUCKETS = "copy_bucket_to_grad"
"""In the name of the range in which PyTorch's DDP copies gradients from its buckets."""
_ONCE = "if this is no one-time load, "
_BESIDE = "so that kernels run meanwhile"
_ASYNCHRONOUS = f"the copies do not block the host: issue them earlier, on another stream, {_BESIDE}"
_OTHERS = f"find the calls that copy (`-o out.pftrace` draws them). Copy less, or on another stream, {_BESIDE}"


def _copies(subject: Subject) -> Iterator[Found]:
    timed = subject.timed
    spent, device = timed.spent, timed.steady.device
    if spent is None or device is None or spent.copy_ns <= COPIES * spent.length_ns:
        return
    if timed.is_capture or timed.has_counters:
        return
    spans = timed.steady.spans
    found = exposed_copies(timed.alignment, device.device, spans)
    said = [_direction(one, len(spans)) for one in found if one.ns >= SHOWN * found[0].ns]
    advice = _advice(timed, found[0])
    yield Found(
        ns=spent.copy_ns,
        share=spent.copy_ns / spent.length_ns,
        count=round(sum(one.count for one in found) / len(spans)),
        number=f"{timed.of_spent(spent.copy_ns)} runs only copies: {'; '.join(said)}.",
        advice=f"{advice[0].upper()}{advice[1:]}.",
        scope=tuple(one.direction for one in found),
    )


def _direction(one: Exposed, number: int) -> str:
    """Return ``885.7 ms device to host (1 copy, 4.52 GB/s)``. ``number``: of steps."""
    noun = one.direction if one.direction in ("copy kernels", "fills") else ""
    copies = max(1, round(one.count / number))
    speed = one.bytes / one.bytes_ns if one.bytes_ns else 0
    rate = f", {f'{speed:.3g}' if speed >= LEAST_SPEED else f'under {LEAST_SPEED}'} GB/s" if one.bytes_ns else ""
    if noun:
        return f"{ms(one.ns / number)} in {count(copies, noun.removesuffix('s'))}{rate}"
    where = "" if one.direction == "copies" else f" {one.direction}"
    memory = "" if one.pageable is None else ", pageable" if one.pageable >= MOSTLY else ", pinned"
    return f"{ms(one.ns / number)}{where} ({count(copies, 'copy')}{memory}{rate})"


def _advice(subject: Subject, longest: Exposed) -> str:
    """Return the advice about the direction with most exposed time, without its full stop."""
    api = "cuda" if subject.is_nvidia else "hip"
    once = _ONCE if subject.step_time is None else ""
    is_pageable = longest.pageable is not None and longest.pageable >= MOSTLY
    is_async = longest.blocking is not None and longest.blocking < MOSTLY and not is_pageable
    if longest.direction == "host to device":
        if is_async:
            return once + _ASYNCHRONOUS
        if subject.is_torch:
            return (
                f"{once}load inputs while kernels run: DataLoader(pin_memory=True) and .to(device, non_blocking=True)"
            )
        return f"{once}use pinned memory and {api}MemcpyAsync on another stream, {_BESIDE}"
    if longest.direction == "device to host":
        is_large = longest.bytes >= LARGE_BYTES * longest.count
        if subject.is_torch and is_large and not is_async:
            return (
                "copy only what the host needs, to pinned memory (torch.empty(..., pin_memory=True).copy_(x,"
                f" non_blocking=True)), {_BESIDE}"
            )
        if subject.is_torch and not is_large:
            return "read results less often (.item(), .cpu(), print): collect them on the GPU, and copy them together"
        if is_async:
            return _ASYNCHRONOUS
        return f"copy only what the host needs, to pinned memory and with {api}MemcpyAsync on another stream, {_BESIDE}"
    if longest.direction == "device to device":
        if any(_OF_BUCKETS in text for text in subject.texts):
            return "DDP copies gradients from its buckets: DistributedDataParallel(..., gradient_as_bucket_view=True)"
        how = " (clone(), contiguous(), cat())" * subject.is_torch
        return f"write data where it is needed: these copies{how} only move it within the GPU's memory"
    if longest.direction == "fills":
        return "do not set memory to zero again and again, unless its content is read before it is written"
    return _OTHERS


RULES = (
    Rule(
        id="copies",
        title="Copies run alone.",
        fires="exposed copies and fills are > 5 % of a steady iteration of the slowest device; without iterations, of"
        " the recording. It never fires for captures of graphs, or if hardware counters were collected",
        formula="time in which copies or fills run, and neither computation nor communication, per iteration; share of"
        " the iteration or the recording. The finding names the directions. If two run at the same time, the first of"
        " this order counts: host to device, device to host, device to device, unknown, the runtime's copy kernels,"
        " fills. GB/s is the size of the copies of a direction divided by their time",
        advice="by the direction with most time. Host to device, if calls block the host or are not recorded: pinned"
        " memory and asynchronous copies (PyTorch: DataLoader(pin_memory=True), .to(device, non_blocking=True)); else"
        " issue them earlier, on another stream. Device to host: read results less often (PyTorch, copies below 1 MiB:"
        " .item(), .cpu(), print), or copy to pinned memory beside kernels. Device to device: write data where it is"
        " needed (if DDP copies gradients from its buckets: gradient_as_bucket_view=True). Without iterations, copies"
        " to the device may be a one-time load.",
        find=_copies,
    ),
)
