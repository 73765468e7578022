"""What MIOpen's level lines tell: tag and text to a kind (miopen-log.md 8)."""

from __future__ import annotations

import re

# What a level line tells, by its tag. A tag with several meanings has a tuple of (text contains, kind), the first wins.
_BY_TAG: dict[str, str | tuple[tuple[str, str], ...]] = {
    "run": "launch",
    "Invoke": "launch name",
    "CallGemm": (("gemm_desc", "gemm"), ("", "gemm library")),
    "CallGemmTimeMeasure": (("gemm_desc", "gemm"), ("", "gemm library")),
    "CallGemmStridedBatched": (("gemm_desc", "gemm"), ("", "gemm library")),
    "CallGemmStridedBatchedSequential": (("gemm_desc", "gemm"), ("", "gemm library")),
    "GetInvoker": "invoker",
    "ConvolutionForward": (("algo = ", "execution"),),
    "ConvolutionBackwardData": (("algo = ", "execution"),),
    "ConvolutionBackwardWeights": (("algo = ", "execution"),),
    "ConvolutionForwardImmediate": (("solver_id = ", "immediate"),),
    "ConvolutionBackwardImmediate": (("solver_id = ", "immediate"),),
    "ConvolutionWrwImmediate": (("solver_id = ", "immediate"),),
    "LogConvolutionExecution": (("Problem=", "summary"),),
    "FillFindReturnParameters": (("Chosen Algorithm", "chosen"),),
    "FindConvolution": (("Chosen Algorithm", "chosen"), ("Algo", "result")),
    "EvaluateInvokers": (("Selected: ", "selected"), (": ", "benchmark")),
    "SetAsFound1_0": "registered",
    "Register": "invoker registered",
    "SetValues": (("content inserted: ", "find-db insert"),),
    "AmdRocmMetadataVersionDetect": "version",
    "DetectAmdRocmMetadataVersion": "version",
    "get_device_name": "device",
    "Handle": "stream",
    "SetStream": "stream",
    "IsEnoughWorkspace": "workspace warning",
    "PrepareInvoker": "prepare",
    "GetKernels": (("key: miopenConvolution", "kernel key"), ("", "kernel cache")),
    "GetFound1_0": "solutions",
    "AddKernel": "kernel cache",
    "AddKernelDumpKernelParams": "kernel cache",
    "Monitor": "tuning",
    "GenericSearch": "tuning",
    "GetAllConfigs": "tuning",
    "FindSolutionImpl": (("Starting search", "tuning"), ("Search failed", "tuning"), ("", "candidate")),
    "SearchForAllSolutions": "candidate",
    "Measure": "timing",
    "impl": "database",
    "Prepare": "database",
    "Exec": "database",
    "Log": "timing",
    "ForwardGetWorkSpaceSize": "workspace",
    "BackwardDataGetWorkSpaceSize": "workspace",
    "BackwardWeightsGetWorkSpaceSize": "workspace",
    "GetWorkSpaceSize": "workspace",
}
_BY_TEXT: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"Chosen Algorithm: ", "chosen"),
        (r"^requestAlgoCount = ", "search"),
        (r"^miopen(?=\w++\s)\w+?Algo\w", "result"),
        (r"^[\w<>-]+: .*: \S+ (?:<|>=) \S+$", "benchmark"),
        (r"[Nn]ot applicable|: Success|: Skipped|[Nn]ot searchable|\(not searchable\)|granularity_loss", "candidate"),
        (r"Looking for key", "key"),
        (r"^id: \d+|Estimated WTI|Fallback path|maxSolutionCount|TunaNet|Found solution", "solutions"),
        (r"^Executing the ", "step"),
        (r"^ ?N=\d++ (?>.*?C=\d++ ).*?K=\d", "arguments"),
        (r"(?<!\w)(?>\w*?MIOPEN_)\w++ ?=|^HIPRTC v|^COMgr v|HCC base|HIP_VERSION", "environment"),
        (r" time: |Time, ms|time, ms", "timing"),
        (r"(?i)workspace", "workspace"),
        (
            r"(?i)database|find-db|perf db|perf_db|\bdb\b|record|prefetch|file is|filesystem|unreadable|Contents found"
            r"|Key match|ndirectory",
            "database",
        ),
        (r"(?i)kernel|binary|compil|source|\.s\b|\.cl\b|\.cpp\b", "build"),
        (r"(?i)descriptor|descritor", "step"),
    )
)
_BY_TAG_PATTERN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"^FindConv(?:Fwd|BwdData|BwdWeights)Algorithm$", "search"),
        (r"Solutions|Solution$|Fallback|WTI", "solutions"),
        (r"[Ww]ork[Ss]pace", "workspace"),
        (r"IsApplicable|PerformanceConfig|[HE]uristic|Config|Solver|Context", "candidate"),
        (r"Db|DB|SQLite|Record|Load|Store|Path|File|Cache|Prefetch|Validate|Filesystem|Ram", "database"),
        (r"Build|Compile|Binary|Kernel|Program|HIPRTC|COMgr|Link|Assemble", "build"),
        (r"Version|Mode|Env|Device|Handle|Stream|hip_mem|Policy|Tuning", "environment"),
        (r"Tensor|Reduce", "step"),
    )
)
# Messages that say something about an operation; the others are counted only.
KEPT_KINDS = frozenset(
    (
        "launch", "gemm", "gemm library", "invoker", "kernel key", "execution", "immediate", "summary", "chosen",
        "registered", "invoker registered", "find-db insert", "key", "search", "error", "warning", "driver",
        "performance",
    )
)  # fmt: skip


def classify(level: str, function: str, text: str) -> str:
    """What a level line tells (miopen-log.md 8); ``other`` when nothing is known about it."""
    found = _BY_TAG.get(function)
    if found is not None:
        if isinstance(found, str):
            return found
        for part, kind in found:
            if part in text:
                return kind
    if level in ("Error", "Fatal"):
        return "error"
    for pattern, kind in _BY_TEXT:
        if pattern.search(text):
            return "warning" if level == "Warning" and kind not in ("chosen", "benchmark") else kind
    if level == "Warning":
        return "warning"
    if level == "Trace":
        return "trace"
    for pattern, kind in _BY_TAG_PATTERN:
        if pattern.search(function):
            return kind
    return "other"
