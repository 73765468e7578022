"""A file that is cut off, as a download leaves it: every command says so, in the same words, whatever the format."""

from __future__ import annotations

import functools
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from mio2trace import analyse
from mio2trace.commands import LATER
from mio2trace.model.tf import TfProfile
from mio2trace.notes import CUT_OFF, Note, Notes
from tests.commands import invoked, printed, stderr_of
from tests.conftest import ROOT, shared_folder
from tests.kineto_files import FIRST_US, rows, trace
from tests.often import saved
from tests.rocm_made import FORMS, Run, run
from tests.small_runs import as_json, as_text, benchmark, small
from tests.test_ops import conv_entry
from tests.tf_files import node, profile_proto
from tests.xspace_made import jax_run

WORDS = "file cut off"
"""In every note and in every refusal."""
TRACES = ROOT / "traces"


@functools.cache
def kineto() -> bytes:
    """Many steps, so that a half of it still holds some."""
    return trace([event for step in range(40) for event in rows(FIRST_US + 2_000 * step)])


def unpacked(name: str) -> bytes:
    data = (TRACES / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


DATABASE, CALLS = "lenet-rocpd/results.db.gz", "alexnet-b1-train/prof.json.gz"
CUT: dict[str, Callable[[], bytes]] = {
    "trace.json": lambda: half(kineto()),
    "trace.json.gz": lambda: half(gzip.compress(kineto())),
    "first.json": lambda: kineto()[:120],
    "first.json.gz": lambda: gzip.compress(kineto())[:110],
    "prof.json": lambda: half(unpacked(CALLS)),
    "prof.json.gz": lambda: half(gzip.compress(unpacked(CALLS))),
    "results.db": lambda: half(unpacked(DATABASE)),
    "last.db": lambda: unpacked(DATABASE)[:-4096],
    "results.db.gz": lambda: half(gzip.compress(unpacked(DATABASE))),
    "run.log.gz": lambda: half((TRACES / "lenet-rocpd/run.log.gz").read_bytes()),
}
COMMANDS = {
    **{name: [name, "FILE", "-o", "OUT.pftrace"] for name in ("convert", "merge")},
    **{
        name: [name, "FILE"]
        for name in ("report", "ops", "driver", "kernels", "layers", "messages", "inspect", "ranks")
    },
    "bundle": ["bundle", "FILE", "-o", "OUT.zip"],
    "batch": ["batch", "FILE", "-o", "OUT"],
    "compare": ["compare", "WHOLE", "FILE"],
    "query": ["query", "FILE", "slowest kernels"],
}
NO_RUN = {"record", "doctor", "completion", "mcp"}
"""They read no file of a run, or only for those who ask them."""
OWN = {"tfprof", "view"}
"""They read files of their own kinds."""


def done(words: list[str], file: Path) -> Result:
    places = {"FILE": str(file), "WHOLE": str(saved(file.parent / "whole.json", kineto()))}
    out = str(file.parent / "out")
    result = invoked(*[places.get(word, word.replace("OUT", out)) for word in words])
    assert result.exit_code in (0, 1), result.output
    return result


def said(words: list[str], file: Path) -> str:
    return " ".join(done(words, file).stderr.split())


def test_every_command_is_tried() -> None:
    assert {command.name for command in LATER} == COMMANDS.keys() | NO_RUN | OWN


PAIRS = [(command, name) for at, command in enumerate(COMMANDS) for to, name in enumerate(CUT) if (at + to) % 5 == 0]
"""Each command with two files, each file with two commands or three: the words are the reader's, the telling is one."""


@pytest.mark.parametrize(("command", "name"), PAIRS)
def test_every_command_says_that_a_file_is_cut_off(warm: None, command: str, name: str, tmp_path: Path) -> None:
    told = said(COMMANDS[command], written(name, tmp_path))
    assert WORDS in told
    if command != "batch":  # which names the run
        assert f"{CUT_OFF} ({name}" in told or f"{name}: {WORDS}" in told
    # A bundle also says why there is no trace in it.
    assert told.count(CUT_OFF) <= (2 if command == "bundle" else 1)


def written(name: str, folder: Path) -> Path:
    return saved(folder / name, CUT[name]())


@pytest.mark.parametrize("name", ["trace.json", "prof.json.gz", "last.db"])
def test_a_quiet_command_says_it_too(name: str, tmp_path: Path) -> None:
    for command in ("convert", "report", "kernels"):
        assert WORDS in said([*COMMANDS[command], "-q"], written(name, tmp_path))


@pytest.mark.parametrize(
    ("kind", "is_cut"),
    [
        (CUT_OFF, True), ("gzip data damaged: read up to there", True), ("MIOpen entry cut off", False),
        ("name of more than 16384 letters cut", False), ("more than 64 MiB of it: read up to there", False),
    ],
)  # fmt: skip
def test_which_notes_are_of_files_that_are_cut_off(kind: str, is_cut: bool) -> None:
    assert Note(kind).is_cut is is_cut


def of_rocm() -> Run:
    """A run long enough that a third of it still holds kernels."""
    one = run()
    for name in ("kernels", "calls", "ranges", "copies"):
        rows = [(row, 10_000 * step, 10 * step) for step in range(20) for row in getattr(one, name)]
        setattr(one, name, [(row[0], row[1] + ns, row[2] + ns, row[3] + key, row[4]) for row, ns, key in rows])
    return one


def ours(suffix: str) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        (folder / "in.json").write_bytes(kineto())
        command = "bundle" if suffix == ".zip" else "convert"
        printed(command, folder / "in.json", "-o", folder / f"out{suffix}")
        return (folder / f"out{suffix}").read_bytes()

    return make


def of_form(form: Callable[[Run], list[bytes]]) -> Callable[[Path], bytes]:
    return lambda _: form(of_rocm())[0]


def ck_record(folder: Path) -> bytes:
    layers = [{"index": at, "label": f"conv{at}", "direction": "forward", "time_ms": 1.5} for at in range(30)]
    return json.dumps({"per_layer_info": layers}).encode()


PROFILES: dict[str, Callable[[Path], bytes]] = {
    "kineto.json": lambda _: kineto(),
    "kineto.json.gz": lambda _: gzip.compress(kineto()),
    "calls.json": lambda _: as_json(small() * 10),
    "blocks.log": lambda _: as_text(small() * 10),
    "spaces.xplane.pb": lambda _: jax_run(steps=20),
    "bundle.zip": ours(".zip"),
    **{
        f"{name}{'.csv' if 'kernels' in name or 'table' in name else ''}": of_form(made)
        for name, made in FORMS.items()
        if name != "ROCm v3 calls"
    },
}
LOGS: dict[str, Callable[[Path], bytes]] = {
    "caffe.log": lambda _: unpacked("alexnet-b1-train/run.log"),
    "miopen.log": lambda _: unpacked("lenet-rocpd/run.log.gz"),
    "record.json": ck_record,
}
OURS = {"own.json": ours(".json"), "own.pftrace": ours(".pftrace"), "own.pftrace.gz": ours(".pftrace.gz")}
SHARED = (
    "kineto_mi250_minitoy_train.json", "rpd_export_matmul.json", "rpd_torch_matmul.rpd.gz",
    "rocprofv1_hiptrace_mi300a.json", "rocprofv1_hiptrace_mi300a.db", "rocprofv1_stats_results.csv",
    "rocprofv3_csv_decode_kernel_trace.csv", "rocprofv3_json_kernel_dispatch_a.json.gz",
    "xplane_jax08_mi300x_conv3d.xplane.pb.gz",
)  # fmt: skip
SHARES = (
    pytest.param(0.3, marks=pytest.mark.thorough), 0.6, pytest.param(0.9, marks=pytest.mark.thorough), None,
)  # fmt: skip
"""Of the bytes; None: in the middle of a record."""


def cut(data: bytes, share: float | None) -> bytes:
    """Never at the end of a line: a table or a log that ends there cannot be told from a whole one."""
    at = len(data) // 2 if share is None else int(len(data) * share)
    if share is None and (line := data.find(b"\n", at)) >= 0:
        at = (line + 1 + data.find(b"\n", line + 1)) // 2
    return data[:at].rstrip(b"\n")


def check(file: Path, *, is_profile: bool) -> None:
    """Either read with the note and the class in JSON, or refused in one line; in both cases in the same words."""
    commands = [["report", "FILE", "--format", "json"], *(COMMANDS[name] for name in ("convert", "kernels", "ops"))]
    for words in commands:
        result = done(words, file)
        told = " ".join(result.stderr.split())
        assert WORDS in told, words
        assert told.count(CUT_OFF) <= 1, words
        if result.exit_code:
            assert re.fullmatch("mio2trace: [^\n]+\n", result.stderr)
            continue
        assert f"{CUT_OFF} ({file.name}" in told, words
        if words[0] == "report":
            document = json.loads(result.stdout)
            assert sum(note.startswith(CUT_OFF) for note in document["notes"]) == 1
            for section in document["runs"] if is_profile else ():
                assert section["completeness"]["counts"]["cut-off"] == 1
                assert section["completeness"]["complete"] is False


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", [*PROFILES, *LOGS, *(pytest.param(name, marks=pytest.mark.shared) for name in SHARED)])
def test_every_format_says_it_in_the_same_words(name: str, share: float | None, tmp_path: Path) -> None:
    if name in SHARED:
        data = (shared_folder() / "samples/rocm" / name).read_bytes()
        data, name = (gzip.decompress(data) if name.endswith(".gz") else data), name.removesuffix(".gz")
    else:
        data = {**PROFILES, **LOGS}[name](tmp_path)
    check(saved(tmp_path / name, cut(data, share)), is_profile=name not in LOGS)


@pytest.mark.parametrize("share", SHARES[:3])
@pytest.mark.parametrize("name", OURS)
def test_our_own_traces_say_it_in_the_same_words(name: str, share: float, tmp_path: Path) -> None:
    file = saved(tmp_path / name, cut(OURS[name](tmp_path), share))
    for words in (["query", "FILE", "slowest kernels"], ["compare", "WHOLE", "FILE"], ["view", "FILE", "--no-browser"]):
        told = stderr_of(done(words, file), 1)
        assert re.fullmatch(rf"mio2trace: {re.escape(name)}: [^\n]*{WORDS}[^\n]*\n", told)


@pytest.mark.parametrize("share", SHARES)
def test_tfprof_says_it_in_the_same_words(share: float | None, tmp_path: Path) -> None:
    nodes = tuple(node(f"a/x{at}", (10 * at, 5, "/gpu:0")) for at in range(40))
    file = saved(tmp_path / "profile.tfprof", cut(profile_proto(TfProfile(source=0, nodes=nodes, steps=(0,))), share))
    result = done(["tfprof", "FILE"], file)
    assert result.stderr.count(WORDS) == 1, result.stderr


def test_a_file_is_said_to_be_cut_off_once() -> None:
    """The compressed data and the records in it end at the same place."""
    notes = Notes()
    for name, where in (("a.log", ""), ("a.log", "line 7"), ("a.log:12", "byte 3"), ("a.log.gz", "")):
        notes.cut_off(name, where)
    assert [str(note) for note in notes] == [f"2 x {CUT_OFF} (a.log, a.log.gz)"]


def test_a_log_is_joined_with_a_profile_of_builds_alone(tmp_path: Path) -> None:
    """Its operations ran in iterations; the part of the profile with the commands is lost."""
    calls, log = benchmark(iterations=2)
    built = [call for call in calls if not call["call"].startswith("clEnqueue")]
    lines = log.splitlines(keepends=True)
    last = next(at for at, line in enumerate(lines) if "Iteration: 2" in line)
    lines.insert(last, conv_entry())
    (tmp_path / "run.log").write_text("".join(lines))
    notes = analyse([tmp_path / "run.log", saved(tmp_path / "prof.json", as_json(built))]).notes
    assert not [note for note in notes if "joining them with the profile failed" in note.kind]
