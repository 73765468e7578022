"""XSpaces, MIOpen's databases and records of GEMM libraries of any size, each large in another way."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.fuzz.slow_inputs import Files, Generator, Slow
from tests.planted import miopen
from tests.xspace_made import Event, Line, plane

_BEGUN_NS = 10**15
_KEY = "{}-{}-99-11x11-16-23-23-1-0x0-4x4-1x1-0-NCHW-FP32-F"
_ITEM = ":0.12,0,miopenConvolutionFwdAlgoGEMM"
_GEMM = "hipblaslt-bench --api_method c -m {} -n 529 -k 363 --transA N --transB N --a_type f32_r --solution_index 1\n"


def _xspace(
    own: Callable[[int, int], tuple[int, int]] = lambda number, count: (number * 10**6, 10**6),
    name: str = "k", path: str = "jit(f)/A/x", op: str = "op", module: str = "jit_f",
    correlation: int | None = None, *, streams: bool = False, steps: bool = False,
) -> Generator:  # fmt: skip
    """Kernels with ``own`` times in ps; ``{}`` in a text is the number of the kernel."""

    def made(size: int) -> Files:
        count = size // 140
        kernels, host, marks = [], [], []
        for number in range(count):
            stats: dict[str, int | float | str | bytes] = {
                "correlation_id": number if correlation is None else correlation, "hlo_op": op.format(number),
                "hlo_module": module.format(number), "program_id": number if "{" in module else 1, "name": path,
            }  # fmt: skip
            kernels.append(Event(name.format(number), *own(number, count), stats))
            host.append(Event("hipLaunchKernel", number * 10**6, 5 * 10**5, stats))
            marks.append(Event(f"train {number}", number * 10**6, 10**6, {"step_num": number, "_r": 1}))
        rows = [[kernel] for kernel in kernels] if streams else [kernels]
        lines = [Line(f"Stream #{at}(Kernel)", row, at, _BEGUN_NS) for at, row in enumerate(rows, 1)]
        threads = [Line("Host Threads/7", host, 2, _BEGUN_NS)]
        threads += [Line("python", marks, 3, _BEGUN_NS)] if steps else []
        return [plane("/device:GPU:0", lines) + plane("/host:CPU", threads)]

    return made


def _beside_a_log(begin: str, repeated: str, *, inside: bool = False) -> Generator:
    """The log of a run with its profile, and ``repeated`` with its number: in the log, or in a file of its own."""

    def made(size: int) -> Files:
        count = size // len(repeated)
        text = (begin + "".join(repeated.format(number, number) for number in range(count)) + "\n").encode()
        log = miopen.LOG.encode()
        return [log + text, miopen.PROFILE] if inside else [log, miopen.PROFILE, text]

    return made


SIDE: Mapping[str, Slow] = {
    "XSpace: kernels": Slow(_xspace()),
    "XSpace: names": Slow(_xspace(name="k{}")),
    "XSpace: equal correlations": Slow(_xspace(correlation=1)),
    "XSpace: ops": Slow(_xspace(op="op.{}")),
    "XSpace: programs": Slow(_xspace(op="op.{}", module="jit_{}")),
    "XSpace: deep scopes": Slow(_xspace(path="jit(f)/" + "jvp(A)/" * 20)),
    "XSpace: nested kernels": Slow(_xspace(lambda number, count: (1000 * number, 1000 * (2 * count - 2 * number) + 1))),
    "XSpace: kernels at once": Slow(_xspace(lambda number, count: (0, 10**6))),
    "XSpace: streams": Slow(_xspace(streams=True)),
    "XSpace: steps": Slow(_xspace(steps=True)),
    "find-db: problems": Slow(_beside_a_log("", f"{_KEY}=GemmFwdRest{_ITEM};ConvAsm1x1U{_ITEM}\n"), "report"),
    "find-db: one problem": Slow(_beside_a_log("", f"{_KEY.format(3, 99)}=GemmFwdRest{_ITEM}\n"), "report"),
    "find-db: solvers": Slow(_beside_a_log(f"{_KEY.format(3, 99)}=", f"Conv{{}}{_ITEM};"), "report"),
    "TunableOp: rows": Slow(
        _beside_a_log("Validator,PT_VERSION,2.9.0\n", "GemmTunableOp_float_TN,tn_{}_529_363,Gemm_Rocblas_{},0.01\n"),
        "report",
    ),
    "BLAS: GEMMs": Slow(_beside_a_log("", _GEMM, inside=True), "report"),
    "BLAS: one GEMM": Slow(_beside_a_log("", _GEMM.format(16), inside=True), "report"),
}
