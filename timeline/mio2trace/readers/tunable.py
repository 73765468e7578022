"""TunableOp's results: the solution of a GEMM library that PyTorch chose, and its time (miopen-side-files.md 9).

    Validator,GCN_ARCH_NAME,gfx1100
    GemmTunableOp_float_TN,tn_384_12_384,Gemm_Rocblas_1140853253,0.0118368
    GemmTunableOp_BFloat16_NN,nn_8192_8192_8192_ld_8192_8192_8192,Gemm_Hipblaslt_617849,0.618229

The file is ``tunableop_results<device>.csv`` of PyTorch 2.2 and later. ``Default`` is the library's own choice. The
time is in ms, and missing if nothing was timed (``inf``). If a problem occurs twice, the last row counts.
"""

from __future__ import annotations

from mio2trace.model.choices import GemmChoice, GemmTable
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.source import Source

NAME = "TunableOp results (PyTorch)"
_VALIDATOR = late(r"Validator,([A-Z_]{3,40}),([\w.+:-]{1,80})")
_OPERATION = late(r"(\w{0,40}?Gemm\w{1,64})_([NT])([NT])")
_TYPES = late(r"(?:float|double|Half|BFloat16|Float8\w{1,20}|c10\w{1,40}|\w{1,20}?)(?:_Float8\w{1,20}){0,2}")
_SIZES = late(
    r"([nt])([nt])_(\d{1,12})_(\d{1,12})_(\d{1,12})(?:_B_(\d{1,9}))?(?:_ld_(\d{1,12})_(\d{1,12})_(\d{1,12}))?(?:_\w{0,80})?"
)
_SOLUTION = late(r"[\w.-]{1,80}")
_MOST_OF_A_TIME = 40
_LONGEST = 400
_MOST_SIZE = 1 << 40


def sniff(head: bytes) -> bool:
    """Return whether the first line is a validator or a GEMM."""
    first = next((line for line in head[:4000].split(b"\n") if line.strip()), b"").strip()
    text = first[:_LONGEST].decode(errors="replace")
    return _VALIDATOR.fullmatch(text) is not None or _gemm(1, text) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Raises `InputError` if no row is a GEMM."""
    gemms: dict[tuple[object, ...], GemmChoice] = {}
    made_for: dict[str, str] = {}
    skipped = 0
    for number, line in enumerate(source.lines(), 1):
        text = line[: _LONGEST + 1].decode(errors="replace").strip()
        validator = _VALIDATOR.fullmatch(text)
        if validator is not None and len(made_for) < 20:
            made_for[validator[1]] = validator[2]
            continue
        gemm = _gemm(number, text)
        if gemm is not None:
            gemms[gemm.function, gemm.types, gemm.m, gemm.n, gemm.k, gemm.batch, gemm.trans_a, gemm.trans_b,
                  gemm.leading] = gemm  # fmt: skip
        elif text:
            skipped += 1
            notes.add("row of TunableOp that cannot be read: skipped", f"{source.name}:{number}")
    if not gemms:
        raise InputError(f"{source.name}: no row of a GEMM; expected TunableOp's results")
    found, valid = tuple(sorted(gemms.values(), key=lambda gemm: gemm.line)), tuple(made_for.items())
    return [GemmTable(source=source.index, kind="tuned", gemms=found, made_for=valid, skipped=skipped)]


def _gemm(number: int, text: str) -> GemmChoice | None:
    """Read ``GemmTunableOp_float_NT,nt_25088_4096_64_ld_1_2_3,Gemm_Rocblas_123,0.05``."""
    fields = text.split(",") if len(text) <= _LONGEST else []
    if len(fields) not in (3, 4):
        return None
    operation, sizes = _OPERATION.fullmatch(fields[0]), _SIZES.fullmatch(fields[1])
    solution, time = fields[2], "".join(fields[3:])
    if operation is None or sizes is None or _SOLUTION.fullmatch(solution) is None or len(time) > _MOST_OF_A_TIME:
        return None
    named, a, b = operation.groups()
    small_a, small_b, *numbers = sizes.groups()
    function, dtype = _cut(named)
    if not dtype or (a + b).lower() != small_a + small_b:
        return None
    m, n, k, batch, *leading = (None if one is None else int(one) for one in numbers)
    if not m or not n or not k or max(m, n, k) >= _MOST_SIZE or batch == 0:
        return None
    return GemmChoice(
        line=number, library="TunableOp", function=function, m=m, n=n, k=k, batch=batch or 1, trans_a=a == "T",
        trans_b=b == "T", types=(dtype,), leading=tuple(one for one in leading if one is not None), solution=solution,
        time_ms=_ms(time),
    )  # fmt: skip


def _cut(named: str) -> tuple[str, str]:
    """Return the shortest possible function in a name, and the types after it; both empty if there are none."""
    at = named.find("_", named.index("Gemm"))
    while at >= 0:
        if _TYPES.fullmatch(named, at + 1) is not None:
            return named[:at], named[at + 1 :]
        at = named.find("_", at + 1)
    return "", ""


def _ms(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None
