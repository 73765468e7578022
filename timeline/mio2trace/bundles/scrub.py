"""Remove private text from logs and records, line by line and field by field, so that they can still be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cache, lru_cache
from typing import Any

import msgspec

from mio2trace.kernels.sources import plain_text
from mio2trace.model.choices import GemmTable, SolverTable
from mio2trace.model.miopen import Entry, LoggedCall, MiopenLog
from mio2trace.model.profile import Activity, OpenClLaunch, Profile
from mio2trace.model.tf import Execution, TfNode, TfProfile
from mio2trace.privacy.pseudonyms import Pseudonyms, Scrubber
from mio2trace.readers.base import Record
from mio2trace.readers.collected import plain_lines
from mio2trace.source import Source

_REMEMBERED = 1 << 14
"""The number of lines that are remembered, because a log repeats them."""
_LONGEST_LINE = 64 << 10
"""Bytes; readers ignore longer lines of a log."""
_HOST_OF_MIOPEN = re.compile(r"(?<!\S)([A-Za-z][\w.-]{0,63})(?= \d{1,10} MIOpen[(:])")
_HOST_OF_PATH = re.compile(r"(?:(?<=MIOpen Error: )|(?<=to file: ))([A-Za-z][\w.-]{1,63})(?=:[/\\.])")
_FOLDER_OF_DRIVER = re.compile(r"(?<!\S)\S*/(?=MIOpenDriver\b)")
_NUMBER = re.compile(r"(?<== )(\d+)[^\s,;)\]}]*")
_ONE_NUMBER = re.compile(r"\d+(?:\.\d+)?(?>(?:x\d+)*)(?:e[+-]?\d+|[A-Za-z%]{1,3}|\([A-Z_]{1,40}\))?")
_PREFIX = re.compile(
    r"(?:(?<!\S)(?:\S+ )?\d{1,10} )?MIOpen(?:\((?:HIP|OpenCL)\))?(?:\s{1,9}\d{1,12}\.\d{3})?"
    r"(?: \(\d{4}-[^()]{0,40}\))?: ?"
)
_HEADER = re.compile(r"\s*miopenStatus_t\s")
_PARAMETER = re.compile(r"\s*[A-Za-z_\"][^=]{0,80} =")
_DVDT = "[dv/dt] "
_PART_OF_DEVICE = re.compile(
    r"job:(?:localhost|worker|ps|chief)|replica:\d{1,9}|task:\d{1,9}|(?:device:)?(?:x?l?a?_?[cgt]pu):\d{1,9}"
    r"|stream:(?:all|\d{1,9})"
)
_BEGIN, _END = "<<", ">>"


def log_lines(source: Source, scrubber: Scrubber) -> Iterator[bytes]:
    """Yield the lines of a log, as many as it has. Lines of a profile inside of it become empty: its records are in
    another member."""
    clean = lru_cache(_REMEMBERED)(lambda line: scrubber.text(line).encode("utf-8", "surrogateescape"))
    form = _Forms(scrubber.pseudonyms)
    within = ""
    for raw in _lines(plain_lines(source.head, source.blocks())):
        line = raw.decode("utf-8", "surrogateescape")
        text = line.rstrip("\r\n")
        before, marker, rest = text.partition(_DVDT)
        if within:
            if marker and rest.rstrip().endswith(_END) and rest.split()[:1] == within.split():
                within = ""
            yield b"\n"
            continue
        if marker:
            if rest.rstrip().endswith(_BEGIN):
                within = " ".join(rest.split()[:1]).replace(_BEGIN, _END)
            text = before if before.strip() else ""
        yield clean(form.of(text)) + b"\n" if len(text) <= _LONGEST_LINE else b"\n"


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        yield from lines
        if len(rest) > 16 * _LONGEST_LINE:
            rest = rest[: 2 * _LONGEST_LINE]
    if rest:
        yield rest


def _whole_numbers(text: str) -> str:
    """Cut a text at a number with attached characters: they would hide private text from the rules."""
    for match in _NUMBER.finditer(text):
        if _ONE_NUMBER.fullmatch(match[0]) is None:
            return text[: match.end(1)] + "?"
    return text


def _word(names: Pseudonyms, kind: str, text: str) -> str:
    return names.word(kind, text).replace(" ", "")


class _Forms:
    """MIOpen's lines with their known forms; other lines unchanged."""

    def __init__(self, pseudonyms: Pseudonyms) -> None:
        self._pseudonyms = pseudonyms
        self._in_entry = False

    def of(self, line: str) -> str:
        for pattern in (_HOST_OF_MIOPEN, _HOST_OF_PATH):
            line = pattern.sub(lambda match: _word(self._pseudonyms, "host", match[1]), line)
        line = _FOLDER_OF_DRIVER.sub("", line)
        match = _PREFIX.search(line)
        begin, body = (line[: match.end()], line[match.end() :]) if match else ("", line)
        if _HEADER.match(body):
            self._in_entry = True
            return begin + header(body)
        if body.strip() == "}":
            self._in_entry = False
        elif (match and body.startswith("\t")) or (self._in_entry and _PARAMETER.match(body)):
            return begin + parameter(body, self._pseudonyms)
        return begin + _whole_numbers(body) if match else line


def scrubbed(record: Record, scrubber: Scrubber) -> Record:
    """Scrub a record that the cleaner has already cleaned. Text that only joins records is replaced if equality
    matters, and removed otherwise."""
    if isinstance(record, Profile):
        return _profile(record, scrubber)
    if isinstance(record, MiopenLog):
        return _library(record, scrubber)
    if isinstance(record, TfProfile):
        return msgspec.structs.replace(record, nodes=tuple(_node(node, scrubber) for node in record.nodes))
    if isinstance(record, GemmTable):
        return msgspec.structs.replace(record, made_for=())
    if isinstance(record, SolverTable):  # parameters may be any text, and nothing needs them
        return msgspec.structs.replace(
            record,
            records=tuple(
                msgspec.structs.replace(
                    of, solvers=tuple(msgspec.structs.replace(one, parameters="") for one in of.solvers)
                )
                for of in record.records
            ),
        )
    return record


def _node(node: TfNode, scrubber: Scrubber) -> TfNode:
    steps = [
        msgspec.structs.replace(step, executions=tuple(_execution(one, scrubber) for one in step.executions))
        for step in node.steps
    ]
    return msgspec.structs.replace(node, steps=tuple(steps))


def _execution(execution: Execution, scrubber: Scrubber) -> Execution:
    device = "/".join(
        part if not part or _PART_OF_DEVICE.fullmatch(part) else _another_part(part, scrubber.pseudonyms)
        for part in execution.device.split("/")
    )
    return msgspec.structs.replace(
        execution, device=device, label=scrubber.text(execution.label.partition("@@")[0], "name")
    )


def _another_part(part: str, names: Pseudonyms) -> str:
    """``stream:7`` stays; another word becomes a replacement word of the same kind."""
    kind = part.partition(":")[0]
    kind = kind if kind in ("job", "stream") else "part"
    return f"{kind}:{_word(names, kind, part)}"


def _profile(profile: Profile, scrubber: Scrubber) -> Profile:
    names = scrubber.pseudonyms
    opencl = profile.opencl
    kernels = {activity.name for activity in profile.activities}
    # The buffers come first: pseudonyms are numbered in the order of their use.
    buffers = tuple(msgspec.structs.replace(one, handle=names.handle(one.handle)) for one in opencl.buffers)
    launches: dict[int, OpenClLaunch] = {}
    scrub = _inputs_scrubber(scrubber)
    return msgspec.structs.replace(
        profile,
        activities=tuple(_activity(one, launches, names) for one in profile.activities),
        ranges=tuple(map(scrub, profile.ranges)),
        queues=tuple(msgspec.structs.replace(one, handle=names.handle(one.handle)) for one in profile.queues),
        clocks=tuple(msgspec.structs.replace(one, scope=names.word("machine", one.scope)) for one in profile.clocks),
        opencl=msgspec.structs.replace(
            opencl,
            buffers=buffers,
            programs=tuple(
                msgspec.structs.replace(
                    one,
                    handle=names.handle(one.handle),
                    source=reduced(one.source, kernels),
                    options=reduced_options(one.options),
                )
                for one in opencl.programs
            ),
        ),
        framework=msgspec.structs.replace(profile.framework, nodes=tuple(map(scrub, profile.framework.nodes))),
    )


def _activity(activity: Activity, launches: dict[int, OpenClLaunch], names: Pseudonyms) -> Activity:
    launch = activity.opencl
    made = launches.get(id(launch))
    if made is None:
        made = launches[id(launch)] = msgspec.structs.replace(
            launch,
            kernel=names.handle(launch.kernel) if launch.kernel else "",
            arguments=tuple(map(names.argument, launch.arguments)),
        )
    return activity if made == launch else msgspec.structs.replace(activity, opencl=made)


def _inputs_scrubber(scrubber: Scrubber) -> Callable[[Any], Any]:
    """Return a function that scrubs the inputs of an op; of other values only numbers and a few words are kept."""
    text = cache(lambda text: scrubber.text(value(text)))

    def scrub(record: Any) -> Any:
        inputs = record.inputs
        if inputs is None or not any(inputs.values):
            return record
        return msgspec.structs.replace(
            record, inputs=msgspec.structs.replace(inputs, values=tuple(map(text, inputs.values)))
        )

    return scrub


def _call(call: LoggedCall, scrubber: Scrubber) -> LoggedCall:
    lines = call.template.decode("latin-1").split("\n")
    kept = "\n".join(parameter(line, scrubber.pseudonyms) if line.strip() else line for line in lines)
    return msgspec.structs.replace(call, template=scrubber.text(kept).encode("latin-1", "replace"))


def _library(log: MiopenLog, scrubber: Scrubber) -> MiopenLog:
    names = scrubber.pseudonyms
    calls: dict[int, LoggedCall] = {}
    records: list[Any] = []
    for record in log.records:
        if isinstance(record, Entry):
            call = calls.get(id(record.call))
            if call is None:
                call = calls[id(record.call)] = _call(record.call, scrubber)
            addresses = b",".join(names.digits(one.decode("ascii")).encode() for one in record.addresses.split(b","))
            record = msgspec.structs.replace(record, call=call, addresses=addresses)
        records.append(record)
    return msgspec.structs.replace(log, records=tuple(records))


# -- The parameters of a logged call, by their possible values: numbers, addresses, words of MIOpen --------------------

_NAMES = frozenset(
    re.findall(
        r"\w+",
        "A B C aDesc activAlpha activBeta activDesc activFwdOp activGamma activOp algo alpha alpha0 alpha1 "
        "alpha2 alpha3 args attr axis b bDesc beta bias biasDesc bnBias bnDesc bnOp bnScale "
        "bnScaleBiasDiffDesc bnScaleBiasMeanVarDesc bn_mode c cDesc c_mode convDesc conv_mode cx cxDesc cy "
        "cyDesc dO dQ dK dV dataType db dbDesc dcx dcxDesc dcy dcyDesc derivedBnDesc dhx dhxDesc dhy dhyDesc "
        "dilation_h dilation_w dilations direction direction_mode do_backward dropout dropoutDesc dw dwDesc dx "
        "dxDesc dy dyDesc eps epsilon estimatedMean estimatedVariance exhaustiveSearch expAvgFactor filterDesc "
        "find_mode fuseDirection fusePlanDesc gamma groupCount group_count h handle hiddenSize hx hxDesc hy "
        "hyDesc indices input inputDesc inputMode inputTensorDesc input_grad k layer lrnAlpha lrnBeta lrnDesc "
        "lrnK lrnN maxSolutionCount maxWorkspaceSize mean mode n name nLayers nbDims negSlope normalized_dim "
        "num_groups op operation options output outputDesc output_grad pad_h pad_w pads perfResults poolDesc "
        "problem problem_type ratio reduceTensorDesc requestAlgoCount reserveSpace reserveSpaceNumBytes "
        "reserveSpaceSizeInBytes resultBnBiasDiff resultBnScaleDiff resultRunningMean resultRunningVariance "
        "resultSaveInvVariance resultSaveMean returnedAlgoCount rnnDesc rnnMode rstd savedInvVariance "
        "savedMean scale seed seqLen seqLength sequenceLen size sizeInBytes solution solution_id spatialDim "
        "states stateSizeInBytes statesSizeInBytes stride strides stride_h stride_w target tensorDesc tensorOp "
        "threshold transpose value variance w wDesc weight weightDesc windowHeight windowWidth workSpace "
        "workSpaceNumBytes workSpaceSize workSpaceSizeInBytes workspace workspaceSize workspaceSizeInBytes "
        "workspace_size x xDesc y yDesc yGrad zDesc",
    )
)
_NAME = re.compile(r"([A-Za-z]\w*)(?:\.values|\[\d{1,4}\])?")
_RUN = re.compile(r"[^\s,{}()\[\]=;]+")
_ALLOWED = re.compile(
    r"[+-]?\d{1,19}(?:\.\d{0,17})?(?:e[+-]?\d{1,3})?|[+-]?(?:nan|inf)|0[xX][0-9A-Fa-f]{1,16}|[0-9A-F]{16}|(?:0x)?\0"
    r"|miopen[A-Z]\w{0,60}|conv[23]d|packed|stream:|device_id:|nullptr|true|false|True|False|None|none|mean|sum|nil"
    r"|:+"
)
_FUNCTION = re.compile(r"(?:miopen::)?miopen\w{1,80}")
_TYPES = re.compile(r"miopen\w{1,60}|const|void|int|unsigned|char|bool|float|double|size_t|u?int\d+_t|std::\w+|[*&<>]+")
_TYPE = re.compile(r"[^\s,*&<>(){}]+")


def value(text: str) -> str:
    """Return the text up to the first part that is neither a number nor an address nor a word of MIOpen."""
    for match in _RUN.finditer(text):
        if _ALLOWED.fullmatch(match[0]) is None:
            return text[: match.start()] + "?"
    return text


def parameter(text: str, names: Pseudonyms) -> str:
    """Scrub a line ``name = value``; an unknown name is replaced."""
    name, equals, rest = text.partition(" =")
    bare = name.strip()
    match = _NAME.fullmatch(bare)
    shown = bare if match is not None and match[1] in _NAMES else _word(names, "parameter", bare)
    begin = name[: len(name) - len(name.lstrip())]
    return f"{begin}{shown}{equals}{value(rest)}" if equals else begin + value(text.strip())


def header(text: str) -> str:
    """Return ``miopenStatus_t miopenConvolutionForward(const void *, ...){`` with only the types of MIOpen and C."""
    before, bracket, rest = text.partition("(")
    name = before.split()[-1] if before.split() else ""
    if _FUNCTION.fullmatch(name) is None:
        before = "miopenStatus_t miopenUnnamed"
    if not bracket:
        return before
    types, close, end = rest.rpartition(")")
    kept = _TYPE.sub(lambda match: match[0] if _TYPES.fullmatch(match[0]) else "?", types if close else rest)
    return before + bracket + kept + (close + ("{" if "{" in end else "") if close else "")


# -- OpenCL program texts and build options: only the parts that show the sizes of kernels -----------------------------

_MACROS = (
    "M", "N", "K", "v_g", "TSM", "TSN", "RTSM", "RTSN", "Dtype", "v_bmul", "v_B_off", "v_C_off", "v_A_off", "v_fout",
    "KV__", "__K__", "GLOBAL_WORK_SIZE", "N_GROUPS_A", "N_GROUPS_B", "MACRO_TILE_LENGTH_A", "MACRO_TILE_LENGTH_B",
    "PRESHIFT_FINAL_TILE_A", "PRESHIFT_FINAL_TILE_B", "GEMMK",
)  # fmt: skip
"""The macros for which the readers of kernels (`mio2trace.kernels`) ask."""
_TELLING = re.compile(
    rf"#[ \t]*define[ \t]+(?P<macro>{'|'.join(_MACROS)})[ \t]+(?P<value>\S[^\n]*)"
    r"|\bvoid\s+(?P<kernel>\w{1,200})\s*\("
    r"|(?P<geometry>/\*\s*tC\d_tA\d_tB\d_colMaj\d_m[0-9]{1,18}_n[0-9]{1,18}_k[0-9]{1,18}_lda)"
)
_VALUE = re.compile(r"\d{1,18}|half|float|double")
_FLAGS = ("-DDUMMY_WORK_ITEMS",)
_OPTION = re.compile(r"(?<!\S)-D ?([A-Z][A-Z0-9_]{0,60}=-?\d{1,18})(?!\S)")


def reduced(source: bytes, kernels: Collection[str]) -> bytes:
    """Return the macros that show sizes, and the definitions of ``kernels``, in their order. Never empty for a text."""
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
    kept = [f"-D{option}" for option in _OPTION.findall(options)]
    return " ".join([*kept, *(flag for flag in _FLAGS if flag in options)])
