"""Make a run that can be given away: one archive, which is an input like the files from which it was made.

Each input is read once, the members are made from its records, and a manifest describes all of them and lists for a
person which words were kept. Paths, hosts, users, pointers, environment, secrets and device ids are removed from logs
and records by the rules of docs/privacy.md. From program texts everything is removed that the analysis does not need.
Names of layers, kernels, functions and scripts stay, even if somebody put a private word into one.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson

import mio2trace
from mio2trace.analysis import Analysis, AnalysisOptions, analyse
from mio2trace.answer import report_of
from mio2trace.answer.content import versions
from mio2trace.answer.markdown import comment
from mio2trace.conversion import convert
from mio2trace.files import Input
from mio2trace.kernels.facts import plain_text
from mio2trace.kernels.names import kernel_name
from mio2trace.model.choices import GemmTable, SolverTable
from mio2trace.model.miopen import Entry, LoggedCall, MiopenLog
from mio2trace.model.profile import Activity, OpenCl, OpenClLaunch, Profile, Program
from mio2trace.model.tables import TimerMarks
from mio2trace.model.tf import Execution, TfNode, TfProfile
from mio2trace.notes import InputError, Notes
from mio2trace.privacy import Pseudonyms, Scrubber, never_shown, records, shown
from mio2trace.readers import run_log
from mio2trace.readers.base import Record
from mio2trace.readers.bundled import ROWS, SCHEMA
from mio2trace.readers.collected import plain_lines
from mio2trace.recording.session import pack, variables
from mio2trace.reports.ops import FOR_AMD, times_of
from mio2trace.reports.ops import driver_lines as driver_lines
from mio2trace.source import MANIFEST, Source, is_archive, unpacked

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
    r"|stream:(?:all|\d{1,9})|memcpy"
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
    parts = execution.device.split("/")
    for place, part in enumerate(parts):
        if part and not _PART_OF_DEVICE.fullmatch(part):  # another word than ``stream:7``
            kind = part.partition(":")[0]
            kind = kind if kind in ("job", "stream") else "part"
            parts[place] = f"{kind}:{_word(scrubber.pseudonyms, kind, part)}"
    label = scrubber.text(execution.label.partition("@@")[0], "name")
    return msgspec.structs.replace(execution, device="/".join(parts), label=label)


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
        clocks=tuple(
            one if one.is_of_a_file else msgspec.structs.replace(one, scope=names.word("machine", one.scope))
            for one in profile.clocks
        ),
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
    r"|miopen[A-Z]\w{0,60}|conv(?:[23]d)?|gemm|forward|backward-(?:data|weights)|packed|stream:|device_id:|nullptr"
    r"|true|false|True|False|None|none|mean|sum|nil"
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


# -- The archive -------------------------------------------------------------------------------------------------------

TRACE = "trace.pftrace.gz"
TOLD = ("profiler", "exit", "seconds", "rank", "variables", "set_by_record", "machine", "boot", "clocks")
"""The keys that the manifest of a recorded run keeps."""


class Made(NamedTuple):
    """The content of an archive: its members, notes from reading, the reason if it has no trace, and the machine and
    versions that the files state."""

    members: tuple[str, ...]
    notes: Notes
    no_trace: str
    machine: Mapping[str, Sequence[str]]
    is_nvidia: bool


def make(files: Sequence[str], output: str, options: AnalysisOptions, *, raw: bool = False) -> Made:
    """Write the bundle of ``files`` to ``output``. ``raw``: also put in the unchanged files, which may hold anything.

    Raises `InputError` if a file is unusable or the archive cannot be written.
    """
    notes = Notes()
    with tempfile.TemporaryDirectory(prefix="mio2trace-") as folder:
        laid = _Laid(files, folder, options.max_input)
        analysis = analyse(laid.files, msgspec.structs.replace(options, functions=False), notes)
        scrubber = Scrubber(Pseudonyms())
        for file in (*analysis.inputs, *analysis.references):
            archive = next(filter(os.path.isfile, map(str, Path(file.path).parents)), None)
            if archive is not None:
                raise InputError(f"{archive}: an archive in a folder; expected the archive's own path")
            with closing(Source(file.path, 0, Notes())) as source:
                scrubber.learn(source.head)
        members = _members(analysis, scrubber, folder, notes)
        no_trace = _draw(laid.files, os.path.join(folder, TRACE))
        if not no_trace:
            members.append(Member(TRACE, os.path.join(folder, TRACE)))
        for name, text in texts(analysis).items():
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8", errors="replace") as out:
                out.write(text)
            members.append(Member(name, path))
        if raw:
            members += [Member(f"raw/{name}", path) for name, path in laid.originals.items()]
        manifest = _manifest(analysis, scrubber, members, laid.told, no_trace)
        pack(output, {**manifest, "raw": raw}, {member.name: member.path for member in members})
    names = tuple(member.name for member in members)
    return Made(names, notes, no_trace, manifest["machine"], _is_nvidia(analysis))


def _is_nvidia(analysis: Analysis) -> bool:
    return any(profile.is_nvidia for run in analysis.runs for profile in run.profiles)


class _Laid:
    """The files, with what the archive of a recorded run states besides its inputs."""

    def __init__(self, files: Sequence[str], folder: str, max_input: int | None) -> None:
        self.files: list[str] = []
        self.told: dict[str, Any] = {}
        self.originals: dict[str, str] = {}
        for number, file in enumerate(files):
            if file == "-":
                file = os.path.join(folder, "standard input")
                with open(file, "wb") as out:
                    shutil.copyfileobj(sys.stdin.buffer, out)
            if os.path.isfile(file):
                self.originals[f"{number}-{os.path.basename(file)}"] = file
            if os.path.isdir(file) or not is_archive(file):
                self.files.append(file)
                continue
            place = os.path.join(folder, f"archive-{number}")
            with unpacked(file, max_input) as made:
                os.rename(made.folder, place)
            if made.manifest is None:  # its members may all be far below: a folder is only looked into so far
                self.files.append(os.path.join(place, os.path.commonpath(map(os.path.dirname, made.members or ("",)))))
                continue
            self.files.append(place)
            with open(os.path.join(place, MANIFEST), "wb") as out:
                out.write(orjson.dumps(made.manifest.told))
            self.told = self.told or {name: made.manifest.told[name] for name in TOLD if name in made.manifest.told}


def _members(analysis: Analysis, scrubber: Scrubber, folder: str, notes: Notes) -> list[Member]:
    """Return the members that are made from inputs; if there are several runs, each has its own folder.

    Raises `InputError` if no input holds a record: no command would accept the archive.
    """
    if not any(file.records for file in analysis.inputs):
        raise InputError(f"{analysis.names}: no record in it; expected kernels, calls or lines of a log")
    members: list[Member] = []
    taken: list[str] = []
    inputs = [(number, file) for number, run in enumerate(analysis.runs, 1) for file in run.inputs]
    for number, file in inputs:
        if not file.records:
            notes.add("file without any record left out of the bundle", file.name)
            continue
        within = f"run{number}/" if len(analysis.runs) > 1 else ""
        members += of_input(file, scrubber, folder, taken, within)
    if len(analysis.runs) == 1:  # a bundle could not record to which of several runs it belongs
        for file in analysis.references:
            members += of_input(file, scrubber, folder, taken, "reference-")
    return members


def _draw(files: Sequence[str], path: str) -> str:
    """Write the trace and return why there is none, or nothing. If no evidence relates the clocks of processes, each
    process begins at its own start."""
    said = ""
    for several, from_start in ((False, False), (True, False), (True, True)):
        try:
            convert(*files, output=path, several=several, from_start=from_start)
            return ""
        except InputError as error:
            said = said or str(error)
    return said


def _manifest(
    analysis: Analysis, scrubber: Scrubber, members: Sequence[Member], told: Mapping[str, Any], no_trace: str
) -> dict[str, Any]:
    """Return the manifest: the content of the bundle, and the statements of a recorded run about itself, cleaned."""
    recorded = _clean(dict(told), scrubber)
    if isinstance(told.get("variables"), dict):
        recorded["variables"] = variables({str(name): str(value) for name, value in told["variables"].items()})
    profiles = [one for run in analysis.runs for one in run.profiles]
    libraries = [log for run in analysis.runs for log in run.libraries]
    named = [log.device_name for run in analysis.runs for log in run.logs if log.device_name]
    machine = versions(profiles, libraries, named)  # what a maintainer asks for first
    inputs = [(member.name, member.of) for member in members if member.of is not None]
    return {
        "made_by": f"mio2trace {mio2trace.__version__} bundle",
        "inputs": [name for name, of in inputs if not of.is_reference],
        "reference": [name for name, of in inputs if of.is_reference],
        "files": [{"member": name, "format": of.format, "size": of.size, "sha256": of.sha256} for name, of in inputs],
        "machine": {name: [scrubber.text(value) for value in values] for name, values in machine.items()},
        "recorded": recorded,
        "notes": {scrubber.text(note.kind): note.count for note in analysis.notes},
        **({"no_trace": scrubber.text(no_trace)} if no_trace else {}),
    }


def _clean(value: Any, scrubber: Scrubber) -> Any:
    """Clean any value of a manifest, which may come from a stranger."""
    if isinstance(value, str):
        return scrubber.text(value)
    if isinstance(value, dict):
        return {scrubber.text(str(name)): _clean(one, scrubber) for name, one in value.items()}
    return [_clean(one, scrubber) for one in value] if isinstance(value, list) else value


# -- The members of a bundle as files in a folder: logs, records, the trace, the report, the driver's lines ------------

_RANK = re.compile(r"(?<![a-z])(?:rank|r)[ _.-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_WHOLE = re.compile(r"(?<!\d)\d{2,10}(?!\d)")
_LEVEL = 6


class Member(NamedTuple):
    """A member of the archive. ``name``: in the archive. ``path``: the file now. ``of``: the input that it represents,
    if any."""

    name: str
    path: str
    of: Input | None = None


def name_of(file: Input, stem: str, ending: str, taken: Iterable[str], folder: str = "") -> str:
    """Return a name such as ``log-rank3.gz``: only the rank or the process number of the file's name stays."""
    rank = _RANK.search(os.path.basename(file.name))
    number = _WHOLE.search(os.path.basename(file.name))
    told = f"-rank{int(rank[1])}" if rank else f"-{number[0]}" if number else ""
    name, count = f"{folder}{stem}{told}{ending}", 1
    while name in taken:
        count += 1
        name = f"{folder}{stem}{told}.{count}{ending}"
    return name


def of_input(file: Input, scrubber: Scrubber, folder: str, taken: list[str], within: str) -> Iterator[Member]:
    """Return the members for an input: the lines of its log, unless they hold less than its records."""
    is_log = file.format == run_log.NAME
    holds_profile = any(isinstance(record, Profile) for record in file.records)

    def written(stem: str, ending: str, lines: Iterable[bytes], of: Input | None) -> Member:
        name = name_of(file, stem, ending, taken, within)
        taken.append(name)
        path = os.path.join(folder, f"{len(taken)}")
        with gzip.GzipFile(path, "wb", _LEVEL, mtime=0) as packed, io.BufferedWriter(packed, 1 << 20) as out:
            out.writelines(lines)
        return Member(name, path, of)

    if is_log:
        with closing(Source(file.path, file.source, Notes())) as source:
            yield written("log", ".gz", log_lines(source, scrubber), None if holds_profile else file)
    if not is_log or holds_profile:
        # reading the lines of a log notes its problems again
        problems = {} if is_log else {scrubber.text(kind): number for kind, number in file.problems.items()}
        lines = record_lines(file.format, (scrubbed(record, scrubber) for record in file.records), problems)
        yield written("profile", ".jsonl.gz", lines, file)


def record_lines(form: str, records: Iterable[Record], problems: Mapping[str, int] | None = None) -> Iterator[bytes]:
    """Yield records as lines for `mio2trace.readers.bundled`. ``problems``: those of the file, by kind."""
    encode = msgspec.json.Encoder().encode
    yield encode({"schema": SCHEMA, "format": form, "problems": problems or {}}) + b"\n"
    for record in records:
        kind = type(record)
        rows: dict[str, tuple[msgspec.Struct, ...]] = {}
        fields = _fields(record, rows)
        yield kind.__name__.encode() + b" " + encode({**fields, "source": 0}) + b"\n"
        for field, members in rows.items():
            kinds = ROWS[kind][field] if field in ROWS[kind] else next(of[field] for of in ROWS.values() if field in of)
            for one in members:
                name = f" {type(one).__name__}" if len(kinds) > 1 else ""
                if "source" in one.__struct_fields__:
                    one = msgspec.structs.replace(one, source=0)
                yield f".{field}{name} ".encode() + encode(_readable(one)) + b"\n"


def _fields(record: msgspec.Struct, rows: dict[str, tuple[msgspec.Struct, ...]]) -> dict[str, Any]:
    """Return the fields in the line of a record; ``rows`` gets the tuples whose members have lines of their own."""
    fields: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name in ROWS.get(type(record), {}):
            rows[name] = value
        elif type(value) in ROWS:
            fields[name] = _fields(value, rows)
        else:
            fields[name] = _readable(value)
    return fields


def _readable(value: Any) -> Any:
    """Return the records with texts in place of bytes."""
    if isinstance(value, OpenCl | Entry | Program | LoggedCall):
        return {name: _readable(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, tuple) and value and isinstance(value[0], Program):
        return [_readable(one) for one in value]
    if isinstance(value, TimerMarks):
        return list(value)
    return value


def texts(analysis: Analysis) -> Mapping[str, str]:
    """Return ``report.md`` and ``driver.txt`` (its lines slowest first); an empty text is left out."""
    made = report_of(analysis, analysis.each, None)
    logged = [one for run in analysis.runs for of_log in run.operations_by_log for one in of_log]
    operations = logged or [
        one for run in analysis.runs for alignment in run.alignments for one in alignment.links.operations
    ]
    times = times_of(analysis.runs[0].measures, operations) if len(analysis.runs) == 1 else None
    commands, _ = driver_lines(operations, times=times)
    found = {
        "report.md": comment(made) if made.sections else "",
        "driver.txt": f"# {FOR_AMD}\n" * (bool(commands) and _is_nvidia(analysis))
        + "".join(f"{line}\n" for line in commands),
    }
    return {name: text for name, text in found.items() if text}


# ---------------------------------------------------------------------------------------------------------------------
# The kept words of a bundle, for a person who reads them before giving it away: every word except numbers and names of
# ROCm, MIOpen, OpenCL or this program.

_WORD = re.compile(r"(?:(?<![\\\w])|(?<=\\n)|(?<=\\t))[A-Za-z_][\w@.+/-]{2,200}")
_KNOWN = re.compile(
    r"miopen\w+|MIOpen\w*|MIOPEN\w*|MLO_\w+|(?:__)?hip[A-Z]\w+|hsa_\w+|HSA_\w+|HIP_\w+|ROCR_\w+|cl[A-Z]\w+|CL_\w+"
    r"|rocprof\w*|roctx\w*|nccl\w*|rccl\w*|cuda[A-Z]\w+|aten::\w+|gfx\w+|(?:pid|rank|handle|host|machine|queue)\d*"
    r"|workSpace\w*|[a-z_]+\.cpp|x\d[\dx]*|[\dx]+|e[+-]?\d+|0x[0-9a-f]+|[a-f0-9]{64}"
)
_OURS = frozenset(
    re.findall(
        r"\w+",
        "mio2trace path host user url pointer environment secret device telephone info debug error warning "
        "true false null const void size_t float double half int char bool enum struct alpha beta algo bias "
        "handle stream command layer forward backward iteration average setting initial performing benchmark "
        "kernel copy conv conv2d pool relu norm name size time type data input output the and for not with "
        "from dim bottom top need set does caffe net archive schema format run log programs buffers blocks "
        "monotonic realtime boottime width code made_by bundle gpu cpu opencl hip use using total memory "
        "required testing begins ends done",
    )
)


class Kept(NamedTuple):
    """A word, its number of occurrences, and the members that contain it."""

    word: str
    times: int
    members: tuple[str, ...]


def kept(path: str) -> list[Kept]:
    """Return the words of an archive's members, the most frequent first."""
    counts: Counter[str] = Counter()
    members: dict[str, set[str]] = {}
    for name, text in _texts(path):
        for word, count in Counter(_WORD.findall(text)).items():
            if not _is_known(word):
                counts[word] += count
                members.setdefault(word, set()).add(name)
    found = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Kept(word, count, tuple(sorted(members[word]))) for word, count in found]


def _texts(path: str) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.filename.endswith((".gz", MANIFEST)) or info.filename.startswith(("raw/", "trace.")):
                continue  # report, commands and trace are made from the same records
            with closing(Source("-", 0, Notes(), stdin=io.BytesIO(archive.read(info)))) as source:
                for block in source.blocks():
                    yield info.filename, block.decode("utf-8", "replace")


@cache
def _vocabulary() -> frozenset[str]:
    """Return the names of fields and classes in records."""
    kinds = {*ROWS, *(kind for kind in records() if shown(kind) or never_shown(kind))}
    words = {kind.__name__ for kind in kinds} | {name for kind in kinds for name in kind.__struct_fields__}
    return frozenset(words | _OURS)


@cache
def _is_known(word: str) -> bool:
    bare = word.strip("._-/\\@+")
    return (
        len(bare) < 3
        or "Desc" in bare
        or bare.endswith(("Size", "SizeInBytes"))
        or bare.lower() in _OURS
        or bare in _vocabulary()
        or _KNOWN.fullmatch(bare) is not None
        or kernel_name(bare) is not None
    )
