"""Of OpenCL program texts and build options what tells a kernel's sizes, and nothing of their text."""

from __future__ import annotations

import re
from collections.abc import Collection

from mio2trace.kernels.sources import plain_text

_MACROS = (
    "M", "N", "K", "v_g", "TSM", "TSN", "RTSM", "RTSN", "Dtype", "v_bmul", "v_B_off", "v_C_off", "v_A_off", "v_fout",
    "KV__", "__K__", "GLOBAL_WORK_SIZE", "N_GROUPS_A", "N_GROUPS_B", "MACRO_TILE_LENGTH_A", "MACRO_TILE_LENGTH_B",
    "PRESHIFT_FINAL_TILE_A", "PRESHIFT_FINAL_TILE_B", "GEMMK",
)  # fmt: skip
"""Those that the readers of kernels (`mio2trace.kernels`) ask for."""
_TELLING = re.compile(
    rf"#[ \t]*define[ \t]+(?P<macro>{'|'.join(_MACROS)})[ \t]+(?P<value>\S[^\n]*)"
    r"|\bvoid\s+(?P<kernel>\w{1,200})\s*\("
    r"|(?P<geometry>/\*\s*tC\d_tA\d_tB\d_colMaj\d_m[0-9]{1,18}_n[0-9]{1,18}_k[0-9]{1,18}_lda)"
)
_VALUE = re.compile(r"\d{1,18}|half|float|double")
_FLAGS = ("-DDUMMY_WORK_ITEMS",)
_OPTION = re.compile(r"(?<!\S)-D ?([A-Z][A-Z0-9_]{0,60}=-?\d{1,18})(?!\S)")


def reduced(source: bytes, kernels: Collection[str]) -> bytes:
    """The macros that tell sizes, and where ``kernels`` are defined, in their order. Never empty for a text."""
    if not source:
        return b""
    lines: list[str] = []
    for match in _TELLING.finditer(plain_text(source)):
        if match["macro"]:
            value = match["value"].strip()
            lines.append(f"#define {match['macro']} {value if _VALUE.fullmatch(value) else '?'}")
        elif match["kernel"]:
            if match["kernel"] in kernels:
                lines.append(f"void {match['kernel']}(")
        else:
            lines.append("".join(match["geometry"].split()) + " */")
    return ("\n".join(lines) or "/* */").encode() + b"\n"


def reduced_options(options: str) -> str:
    """The macros that are numbers."""
    kept = [f"-D{option}" for option in _OPTION.findall(options)]
    return " ".join([*kept, *(flag for flag in _FLAGS if flag in options)])
