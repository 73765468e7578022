"""GEMMs that BLAS libraries computed, and the solutions that they chose: lines of hipBLASLt's and rocBLAS's logs, and
TunableOp's results (miopen-side-files.md 6, 7, 9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from mio2trace.model.choices import GemmChoice, GemmTable
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import Format, ReadOptions, Records
from mio2trace.source import Source

_MOST_SIZE = 1 << 40

# -- Lines of the libraries' logs, alone or between others -------------------------------------------------------------
#
#     [2023-06-12 21:16:46][HIPBLASLT][690719][Trace][rocblaslt_matmul] A=0x.. Adesc=[type=R_32F rows=2400 cols=128 ..
#     hipblaslt-bench --api_method c -m 1024 -n 512 -k 1024 ... --transA N --transB N ... --solution_index 56073
#     - { function: matmul, M: 128, N: 128, K: 128, ..., transA: N, a_type: f16_r, compute_type: c_f32_r, ...
#     rocblas_gemm_ex,T,N,256,64,128,1,0x..,f16_r,1024,0x..,f16_r,128,0,0x..,f32_r,256,0x..,f32_r,256,f32_r,0,0,none,...
#     rocblas_sgemm_strided_batched,T,N,256,64,128,1,0x..,1024,131072,0x..,128,8192,0,0x..,256,16384,96,atomics_allowed
#     ./rocblas-bench -f gemm_batched_ex --transposeA T --transposeB N -m 256 -n 64 -k 128 ... --batch_count 96
#     - { rocblas_function: "rocblas_gemm_ex", a_type: "f16_r", ..., transA: 'N', M: 108, ..., call_count: 1 }
#
# A library may print a call in all three forms at once. For each library the bench lines count, else the trace, else
# the profile at the program's end. Equal calls are one record with their number. Cut lines are counted.

_LETTERS = {"h": "f16_r", "s": "f32_r", "d": "f64_r", "c": "f32_c", "z": "f64_c"}
"""The type of all matrices of a function of rocBLAS, by the letter before ``gemm`` or behind ``-r``."""
WORDS = (b"hipblaslt-bench ", b"rocblas-bench ", b"[HIPBLASLT][", b"rocblas_gemm", b"{ function: matmul",
         b"{ rocblas_function:", *(f"rocblas_{letter}gemm".encode() for letter in _LETTERS))  # fmt: skip
_LT, _ROC = "hipBLASLt", "rocBLAS"
_BENCH = late(r"(?:(?<!\S)(\d{1,9})\s+)?(?:\./|(?<!\S)/\S{0,200}/)?(?<![\w-])(hipblaslt|rocblas)-bench (?=\s*-)")
_OPTION = late(r"--?[A-Za-z]\w{0,40}")
_DESCRIPTOR = late(r"(?<!\w)([ABCD])desc=\[([^\]\[]{0,400})\]")
_COMPUTE = late(r"computeDesc=\[([^\]\[]{0,600})\]")
_FIELD = late(r"(\w{1,40})=(\S{1,80})")
_TRACE = late(r"(?<![\w.])(rocblas_gemm(?:_strided)?(?:_batched)?_ex3?(?:_64)?),([NTC]),([NTC]),(\d.*)")
_PLAIN_TRACE = late(r"(?<![\w.])(rocblas_[hsdcz]gemm(?:_strided)?(?:_batched)?(?:_64)?),([NTC]),([NTC]),(\d.*)")
_PLAIN = late(r"([hsdcz])gemm(?![a-z])")
_COMPLEX = late(r"\([^()]{0,100}\)")
"""A complex number of a trace line has a comma."""
_ENTRY = late(r"- \{ (rocblas_)?function: (.*)")
_TYPE = late(r"[A-Za-z][A-Za-z0-9_]{1,30}")
_NAME = late(r"[A-Za-z_][\w<>:-]{0,80}")
_LONG_OPTIONS = {"sizem": "m", "sizen": "n", "sizek": "k", "precision": "r", "function": "f"}
"""Of the bench tools, as a person types them: the libraries print the short ones."""
_MOST_FIELDS = 64
_MOST_OF_A_GROUP = 1 << 14
"""The most words of the sizes of a grouped GEMM."""
_MOST_DISTINCT = 1 << 20
Form = Literal["bench", "trace", "profile"]
_FORMS: tuple[Form, ...] = ("bench", "trace", "profile")


class BlasDecoder:
    """Reads lines one by one."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._found: dict[tuple[str, Form], dict[GemmChoice, tuple[int, int]]] = {}
        """By library and form: the first line and the number of each distinct call."""
        self._calls: list[tuple[tuple[str, Form], GemmChoice]] = []
        self._counted: set[tuple[str, Form]] = set()
        """Forms in which a line represents several calls, so that the order of calls is unknown."""
        self._skipped = 0
        self.lines = 0

    def feed(self, number: int, line: bytes) -> bool:
        """Return whether the line is from one of the libraries."""
        if not any(word in line for word in WORDS):
            return False
        text = line.decode(errors="replace").strip()
        if self._bench(number, text):
            pass
        elif "][HIPBLASLT][" in f"]{text}":
            if "rocblaslt_matmul]" in text or ("Adesc=[" in text and "Bdesc=[" in text):
                self._add(number, (_LT, "trace"), _hipblaslt_trace(text))
        elif (traced := _TRACE.search(text)) is not None:
            self._add(number, (_ROC, "trace"), _rocblas_trace(traced, traced[4], has_types=True))
        elif (traced := _PLAIN_TRACE.search(text)) is not None:
            self._add(number, (_ROC, "trace"), _rocblas_trace(traced, _COMPLEX.sub("0", traced[4]), has_types=False))
        elif (entry := _ENTRY.search(text)) is not None:
            library = _LT if entry[1] is None else _ROC
            self._add(number, (library, "profile"), *_profile_entry(library, entry[2]))
        else:
            return False
        self.lines += 1
        return True

    def finish(self) -> GemmTable | None:
        """Return the calls; None if no line was from these libraries."""
        if not self.lines:
            return None
        gemms: list[tuple[tuple[str, Form], GemmChoice, GemmChoice]] = []
        for library in (_LT, _ROC):
            form = next((form for form in _FORMS if self._found.get((library, form))), None)
            if form is not None:
                gemms += [
                    ((library, form), gemm, msgspec.structs.replace(gemm, line=line, count=count))
                    for gemm, (line, count) in self._found[library, form].items()
                ]
        gemms.sort(key=lambda one: one[2].line)
        place_of = {(of, gemm): place for place, (of, gemm, _) in enumerate(gemms)}
        is_ordered = not self._counted & {of for of, _, _ in gemms}
        order = tuple(place_of[call] for call in self._calls if call in place_of) if is_ordered else ()
        return GemmTable(
            source=self._source, kind="log", gemms=tuple(gemm for _, _, gemm in gemms), skipped=self._skipped,
            order=order,
        )  # fmt: skip

    def _add(self, number: int, of: tuple[str, Form], gemm: GemmChoice | None, count: int = 1) -> None:
        found = self._found.setdefault(of, {})
        if gemm is None or (gemm not in found and len(found) >= _MOST_DISTINCT):
            self._skipped += 1
            return
        if count > 1 or of[1] == "profile":
            self._counted.add(of)
        self._calls.append((of, gemm))
        line, before = found.get(gemm, (number, 0))
        found[gemm] = line, min(before + count, _MOST_SIZE)

    def _bench(self, number: int, text: str) -> bool:
        """Read commands of the bench tools; a line may have several, of which the last one may be cut off."""
        found = list(_BENCH.finditer(text))
        for place, command in enumerate(found):
            end = found[place + 1].start() if place + 1 < len(found) else len(text)
            options, grouped = _options(text[command.end() : end])
            library = _LT if command[2] == "hipblaslt" else _ROC
            self._add(number, (library, "bench"), _of_options(library, options, grouped), int(command[1] or "1"))
        return bool(found)


def _options(text: str) -> tuple[dict[str, str], int]:
    """Return options and values, and the number of GEMMs; an option without a value is empty, a value may be a negative
    number. A grouped GEMM has sizes for each of its GEMMs: of unequal ones there is no option."""
    options: dict[str, str] = {}
    sizes: dict[str, list[str]] = {"m": [], "n": [], "k": [], "batch_count": []}
    name = ""
    for word in text.split()[: 2 * _MOST_FIELDS + _MOST_OF_A_GROUP]:
        if _OPTION.fullmatch(word) is not None:
            name = word.lstrip("-")
            options.setdefault(name, "")
        elif name:
            options[name] = word
            if name in sizes:
                sizes[name].append(word)
            name = ""
    for name, values in sizes.items():
        if len(set(values)) > 1 or (name != "batch_count" and len(values) != len(sizes["m"])):
            options[name] = ""
    return options, max(len(sizes["m"]), 1)


def _of_options(library: str, options: Mapping[str, str], grouped: int) -> GemmChoice | None:
    trans = "trans" if library == _LT else "transpose"
    given = {_LONG_OPTIONS.get(name, name): value for name, value in options.items()}
    options = {f"{trans}A": "N", f"{trans}B": "N"} | given
    function = options.get("f", "gemm") if library == _ROC else "matmul"
    if not options.get("a_type", options.get("r", "")):
        return None  # the libraries print all of these options, so the line is cut off
    found = _of_fields(library, function, options, "mnk", trans)
    return found if found is None or grouped == 1 else msgspec.structs.replace(found, batch=found.batch * grouped)


def _of_fields(library: str, function: str, options: Mapping[str, str], sizes: str, trans: str) -> GemmChoice | None:
    """Return a GEMM by the fields that the bench tools and the profiles have in common."""
    if library == _ROC and "gemm" not in function:
        return None
    words = ["bias"] if options.get("bias_vector") not in (None, "false", "0") else []
    activation = options.get("activation_type", "none")
    words += [activation] if activation not in ("none", "") and _NAME.fullmatch(activation) is not None else []
    plain, solution = options.get("r", ""), options.get("solution_index", "")
    plain = _LETTERS.get(plain, plain)
    return _made(
        library, function, [options.get(name) for name in sizes], options.get("batch_count", "1"),
        (options.get(f"{trans}A", ""), options.get(f"{trans}B", "")),
        tuple(
            options.get(f"{name}_type", plain) or known
            for name, known in zip(("a", "b", "c", "d", "compute"), _plain_types(function), strict=True)
        ),
        [options.get(f"ld{name}") for name in "abcd"], "+".join(words),
        "" if library == _ROC and solution == "0" else solution,
    )  # fmt: skip


def _hipblaslt_trace(text: str) -> GemmChoice | None:
    """Sizes are those of the stored matrices, before the transpose."""
    descriptors = {name: dict(_FIELD.findall(body)) for name, body in _DESCRIPTOR.findall(text)}
    compute = _COMPUTE.search(text)
    if not descriptors.keys() >= {"A", "B"} or compute is None:
        return None
    told = dict(_FIELD.findall(compute[1]))
    trans = told.get("transA", "OP_N").removeprefix("OP_"), told.get("transB", "OP_N").removeprefix("OP_")
    a, b = descriptors["A"], descriptors["B"]
    m, k = (a.get("rows"), a.get("cols")) if trans[0] == "N" else (a.get("cols"), a.get("rows"))
    n = b.get("cols") if trans[1] == "N" else b.get("rows")
    types = tuple(descriptors.get(name, {}).get("type", "") for name in "ABCD")
    epilogue = told.get("epilogue", "").removeprefix("EPILOGUE_").lower()
    return _made(
        _LT, "matmul", [m, n, k], a.get("batch_count", "1"), trans, (*types, told.get("computeType", "")),
        [descriptors.get(name, {}).get("ld") for name in "ABCD"],
        epilogue if epilogue != "default" and _NAME.fullmatch(epilogue) is not None else "", "",
    )  # fmt: skip


def _rocblas_trace(traced: re.Match[str], arguments: str, *, has_types: bool) -> GemmChoice | None:
    """``tA,tB,m,n,k,alpha,A[,type],ld[,stride],B,...,beta,C,...[,D,...][,batch][,compute,algo,solution],...``: a
    function has D and the words after the batch if it has types; otherwise all matrices have the type of its name."""
    function, fields = traced[1].removeprefix("rocblas_"), [traced[2], traced[3], *arguments.split(",")]
    step = 2 + has_types + ("_strided" in function)
    places = [6, 6 + step, 7 + 2 * step, 7 + 3 * step][: 3 + has_types]
    end = 7 + len(places) * step
    has_batch = "_batched" in function
    if not end + has_batch + 3 * has_types <= len(fields) <= _MOST_FIELDS:
        return None
    leading: list[str | None] = [fields[place + 1 + has_types] for place in places]
    types, solution = _plain_types(function), ""
    if has_types:
        compute, _, solution = fields[end + has_batch : end + has_batch + 3]
        types = (*(fields[place + 1] for place in places), compute)
    return _made(
        _ROC, function, list(fields[2:5]), fields[end] if has_batch else "1", (fields[0], fields[1]), types,
        [*leading, leading[-1]][:4], "", "" if solution == "0" else solution,
    )  # fmt: skip


def _plain_types(function: str) -> tuple[str, ...]:
    """Return the types of a function whose name has them, as ``sgemm``: A, B, C, D, computation; else no type."""
    plain = _PLAIN.match(function)
    return (_LETTERS[plain[1]],) * 5 if plain is not None else ("",) * 5


def _profile_entry(library: str, text: str) -> tuple[GemmChoice | None, int]:
    """Return the GEMM of an entry and the number of calls. Some versions do not quote and end fields as YAML does."""
    first, *others = text.rstrip(" }").split(", ")[:_MOST_FIELDS]
    fields = {"function": first.strip("\"' ")}
    for field in others:
        name, _, value = field.partition(": ")
        fields[name.strip()] = value.strip("\"' ")
    fields.pop("r", None)
    made = _of_fields(library, fields["function"].removeprefix("rocblas_"), fields, "MNK", "trans")
    return made, _whole(fields.get("call_count", "1")) or 1


def _made(  # noqa: PLR0913 - one call a form
    library: str,
    function: str,
    sizes: list[str | None],
    batch: str,
    trans: tuple[str, str],
    types: tuple[str, ...],
    leading: list[str | None],
    epilogue: str,
    solution: str,
) -> GemmChoice | None:
    m, n, k = map(_whole, sizes)
    count = _whole(batch)
    if not m or not n or not k or not count or not set(trans) <= {"N", "T", "C"} or _NAME.fullmatch(function) is None:
        return None
    plain = tuple(one.removeprefix("c_") for one in types)
    return GemmChoice(
        line=0, library=library, function=function, m=m, n=n, k=k, batch=count, trans_a=trans[0] != "N",
        trans_b=trans[1] != "N", types=tuple(one if _TYPE.fullmatch(one) else "" for one in plain),
        leading=tuple(_whole(one) or 0 for one in leading), epilogue=epilogue,
        solution=solution if solution.lstrip("-").isdigit() and len(solution) < 20 else "",
    )  # fmt: skip


def _whole(text: str | None) -> int | None:
    number = int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 14 else None
    return number if number is not None and number < _MOST_SIZE else None


# -- TunableOp's results: the solution that PyTorch chose for a GEMM, and its time -------------------------------------
#
#     Validator,GCN_ARCH_NAME,gfx1100
#     GemmTunableOp_float_TN,tn_384_12_384,Gemm_Rocblas_1140853253,0.0118368
#     GemmTunableOp_BFloat16_NN,nn_8192_8192_8192_ld_8192_8192_8192,Gemm_Hipblaslt_617849,0.618229
#
# The file is ``tunableop_results<device>.csv`` of PyTorch 2.2 and later. ``Default`` is the library's own choice. The
# time is in ms, and missing if nothing was timed (``inf``). If a problem occurs twice, the last row counts.

_VALIDATOR = late(r"Validator,([A-Z_]{3,40}),([\w.+:-]{1,80})")
_OPERATION = late(r"(\w{0,40}?Gemm\w{1,64})_([NT])([NT])")
_TUNED_TYPES = late(r"(?:float|double|Half|BFloat16|Float8\w{1,20}|c10\w{1,40}|\w{1,20}?)(?:_Float8\w{1,20}){0,2}")
_SIZES = late(
    r"([nt])([nt])_(\d{1,12})_(\d{1,12})_(\d{1,12})(?:_B_(\d{1,9}))?(?:_ld_(\d{1,12})_(\d{1,12})_(\d{1,12}))?(?:_\w{0,80})?"
)
_SOLUTION = late(r"[\w.-]{1,80}")
_MOST_OF_A_TIME = 40
_LONGEST = 400


def _is_tunable(head: bytes) -> bool:
    """Return whether the first line is a validator or a GEMM."""
    first = next((line for line in head[:4000].split(b"\n") if line.strip()), b"").strip()
    text = first[:_LONGEST].decode(errors="replace")
    return _VALIDATOR.fullmatch(text) is not None or _tuned(1, text) is not None


def _read_tunable(source: Source, options: ReadOptions, notes: Notes) -> Records:
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
        gemm = _tuned(number, text)
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


def _tuned(number: int, text: str) -> GemmChoice | None:
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
        if _TUNED_TYPES.fullmatch(named, at + 1) is not None:
            return named[:at], named[at + 1 :]
        at = named.find("_", at + 1)
    return "", ""


def _ms(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None


TUNABLE = Format("TunableOp results (PyTorch)", _is_tunable, _read_tunable)
