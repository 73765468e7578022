"""The purpose of the kernels of language models, by their names: vLLM, SGLang, AITER, FlashInfer, TensorRT-LLM, Triton,
llama.cpp.

Used only for kernels in no operation, such as those of a graph whose capture is not recorded. No link rests on it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mio2trace.kernels.names import kernel_name, normalise, stem
from mio2trace.patterns import late

# The first match counts. The name is normalised; of one that says nothing (ck_tile's `kentry`) the whole name counts.
_ROWS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (purpose, late(pattern, re.ASCII | re.IGNORECASE))
    for purpose, pattern in (
        ("KV cache", r"reshape_and_cache|concat_and_cache|store_?kv_?cache|set_\w{0,20}kv_buffer|cp_gather_cache"),
        ("MoE", r"\bmoe|_moe|moe_|MoeSorting|matmul_ogs|combined_routing|_finalize_matmul_scatter|topk_?gating"
                r"|grouped_topk|bmm_\w{0,40}MxE\dm\d"),
        ("mha", r"attention|fmha|flash_?(?:attn|fwd|decode|mla)|attn_fwd|attn_kernel|PagedKV|paged_kv|mla_decode"
                r"|mla_fwd|merge_attn_states|^pa_(?:fwd|bf16|fp8)"),
        # not the end of TensorOperation, upsampling
        ("rope", r"rotary|(?-i:(?<![A-Za-z])m?rope(?![a-z])|Rope(?![a-z])|ROPE(?![A-Z]))"),
        ("norm", r"(?:rms|layer)_?norm"),
        ("sampling", r"(?<!up)(?<!down)(?<!sub)(?<!re)sampling|top_?k_?top_?p|argmax|apply_penalties"
                     r"|softmax_with_temperature"),
        ("activation", r"act_and_mul|silu_and_mul|gelu_and_mul"),
        ("gemm", r"^mul_mat_"),  # llama.cpp
    )
)  # fmt: skip
PURPOSES = frozenset(purpose for purpose, _ in _ROWS if purpose != "gemm")
"""Purposes that only language models have, or that are a step of their own there."""
_FUSED = late(r"triton_[a-z]{3}_fused_")
"""TorchInductor names a kernel by all ops in it."""
_SAYS_NOTHING = frozenset(("kentry", "kernel", "Kernel", "device_kernel"))


@lru_cache(maxsize=1 << 12)
def purpose(name: str) -> str:
    """Return the purpose of a kernel; empty if its name shows none, or if `kernel_name` knows the name."""
    if kernel_name(name) is not None or _FUSED.match(name) is not None:
        return ""
    plain = normalise(stem(name))
    told = name if plain in _SAYS_NOTHING else plain
    return next((purpose for purpose, pattern in _ROWS if pattern.search(told) is not None), "")
