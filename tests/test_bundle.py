"""`mio2trace bundle`: nothing private in any member, and the links that the files themselves give."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import mio2trace
from benchmarks.bundles import analysed, links, sets
from mio2trace.analysis import AnalysisOptions
from mio2trace.answer.content import versions
from mio2trace.bundles import log_lines, make, record_lines, reduced, reduced_options
from mio2trace.model.miopen import Message, MiopenLog
from mio2trace.model.profile import Activity, Clock, Device, Profile
from mio2trace.notes import InputError, Notes
from mio2trace.privacy import Pseudonyms, Scrubber
from mio2trace.readers import bundled
from mio2trace.readers.base import ReadOptions
from mio2trace.source import Source
from tests import rocm_made, rocpd_made
from tests.canaries import BY_NAME, CANARIES, PROMPT, leaks
from tests.commands import invoked, printed, stderr_of
from tests.conftest import ROOT, shared_folder
from tests.kineto_files import kineto_file, rows
from tests.planted import FORMATS
from tests.small_runs import benchmark

OPTIONS = AnalysisOptions(by_order_alone=True)
_, LOG = benchmark()
SOME = list(zip(itertools.cycle(FORMATS), CANARIES))
"""Each kind once, each format at least once; `benchmarks/bundles.py --canaries` has all pairs."""
QUICK = (
    "miopen-opencl/m121-alexnet-infer-interleaved", "miopen-opencl/m290-lenet-train-cmdonly",
    "miopen-opencl/m121-lenet-train-debugbuild", "dvdt/lenet-b2-viennacl-fwd", "dvdt/clblast-gemm-indirect-small",
    "dvdt/offline-parser", "dvdt/lenet-b2-fwd.tmp-ck-timer.json", "dvdt/clblast-gemm-direct.interleaved.log",
    "rocm-twins/lenet-train-own-layers/rocpd", "rocm-twins/lenet-train-own-layers/rocprofv3-csv",
    "rocm-twins/lenet-train-own-layers/kineto", "rocm-twins/resnet-immediate-2ranks/rpd",
)  # fmt: skip
"""Of each kind of source one; `benchmarks/bundles.py` has all."""


def members(path: Path | str) -> Iterator[tuple[str, bytes]]:
    """Each member's content, decompressed."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            yield name, gzip.decompress(data) if name.endswith(".gz") else data


def member(path: Path, name: str) -> str:
    return dict(members(path))[name].decode()


def assert_nothing_leaks(path: Path) -> None:
    found = dict(members(path))
    assert len(found) >= 2
    assert not [name for name, data in found.items() if leaks(data)]


@pytest.mark.shared
@pytest.mark.parametrize("name", QUICK)
def test_a_bundle_gives_the_links_of_its_sources(name: str, tmp_path: Path) -> None:
    """Layers, operations, evidence and confidence of each kernel; and none of the samples' host names."""
    files = [str(path) for path in dict(sets(shared_folder() / "samples"))[name]]
    out = tmp_path / "bundle.zip"
    make(files, str(out), OPTIONS)
    own = links(analysed(files))
    assert own
    assert links(analysed([str(out)])) == own
    for text in ("gpunode07", "CANARY-c0ffee"):
        for inside, data in members(out):
            assert text.encode() not in data, inside


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["profile.tfprof", "run_metadata.pb", "trace_file.json.gz", "trace_file_stepstats.pbtxt.gz"]
)
def test_a_bundle_of_a_tensorflow_profile_is_an_input_of_its_command(name: str, shared: Path, tmp_path: Path) -> None:
    """That of another profile is not."""
    file, bundle = str(shared / "samples" / "tfprof" / "gpu_streams_resnet_v2" / name), str(tmp_path / "bug.zip")
    make([file], bundle, OPTIONS)
    tables = [invoked("tfprof", path, "--format", "csv") for path in (bundle, file)]
    assert tables[0].exit_code == 0, tables[0].stderr
    assert tables[0].stdout == tables[1].stdout
    make([str(ROOT / "traces" / "alexnet-b1-train" / "prof.json.gz")], bundle, OPTIONS)
    assert "no profile of TensorFlow in it; expected a TFProf profile" in stderr_of(invoked("tfprof", bundle), 1)


@pytest.mark.parametrize(
    ("name", "kind"), [pytest.param(*pair, marks=[pytest.mark.thorough] * (at % 3 > 0)) for at, pair in enumerate(SOME)]
)
def test_no_canary_reaches_any_member(name: str, kind: str, tmp_path: Path) -> None:
    """A part of all kinds, in all fields of each format."""
    paths = []
    for number, data in enumerate(FORMATS[name](CANARIES[kind])):
        paths.append(str(tmp_path / f"in{number}"))
        Path(paths[-1]).write_bytes(data)
    make(paths, str(tmp_path / "bundle.zip"), AnalysisOptions(by_order_alone=True, join=False))
    assert_nothing_leaks(tmp_path / "bundle.zip")


def test_the_part_has_all_formats_and_kinds() -> None:
    assert {name for name, _ in SOME} == set(FORMATS)
    assert {kind for _, kind in SOME} == set(CANARIES)


def test_names_that_the_head_of_a_log_tells_are_cut_in_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(PROMPT + LOG + f"hello {BY_NAME}\n")
    out = tmp_path / "bundle.zip"
    make([str(tmp_path / "run.log")], str(out), OPTIONS)
    assert_nothing_leaks(out)
    assert "hello (user) on (host)" in member(out, "log.gz")


def test_the_hosts_that_miopen_prints_before_its_lines_become_others(tmp_path: Path) -> None:
    """Two machines stay two."""
    lines = [
        "canarynode1 4711 MIOpen(HIP): Info [x] y",
        "canarynode2 4711 MIOpen(HIP): Info [x] y",
        "canarynode1 4711 MIOpen(HIP): Error [x] MIOpen Error: canarynode1:/home/canary/x.cpp:5: no",
    ]
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    with contextlib.closing(Source(str(tmp_path / "run.log"), 0, Notes())) as source:
        made = b"".join(log_lines(source, Scrubber(Pseudonyms()))).decode().splitlines()
    assert [line.split()[0] for line in made] == ["host1", "host2", "host1"]
    assert not leaks("\n".join(made))


def test_addresses_become_others_that_join_what_they_joined(tmp_path: Path) -> None:
    """In the log and in a kernel's arguments the same, and none that was there."""
    files = [str(path) for path in ALEXNET]
    out = tmp_path / "bundle.zip"
    make(files, str(out), OPTIONS)
    assert "buffers" in mio2trace.analyse(out).run.alignments[0].links.operation_by
    before = gzip.decompress(Path(files[1]).read_bytes()).decode()
    addresses = {call["buffer"] for call in orjson.loads(before) if call["call"] == "clCreateBuffer"}
    assert len(addresses) > 5
    for inside, data in members(out):
        assert not any(address[2:].encode() in data for address in addresses), inside


def test_program_texts_are_not_in_a_bundle_but_for_sizes() -> None:
    text = (
        b"// canary /home/canary\n#define M 5\n#define SECRET canary\n#define v_bmul canary_x\nvoid conv(\nvoid other("
    )
    assert reduced(text, {"conv"}) == b"#define M 5\n#define v_bmul ?\nvoid conv(\n"
    assert reduced(b"", {"conv"}) == b""
    assert reduced(b"secret", set()) == b"/* */\n"
    options = "-DMLO_X=3 -I/home/canary -DNAME=canary -D Y=-4 -DDUMMY_WORK_ITEMS -DZ=5x"
    assert reduced_options(options) == "-DMLO_X=3 -DY=-4 -DDUMMY_WORK_ITEMS"


def test_a_bundle_has_a_trace_a_report_and_commands_and_says_what_it_is(tmp_path: Path) -> None:
    example = ROOT / "traces" / "lenet-rocpd"
    out = tmp_path / "bug.zip"
    words = ["bundle", str(example / "run.log.gz"), str(example / "results.db.gz"), "-o", str(out)]
    said = stderr_of(invoked(*words), 0)
    assert "wrote " in said
    names = [name for name, _ in members(out)]
    assert names == [
        "manifest.json", "log.gz", "profile.jsonl.gz", "trace.pftrace.gz", "report.md", "driver.txt",
    ]  # fmt: skip
    lines = member(out, "driver.txt").splitlines()
    times = [float(line.rpartition(", ")[2].partition(" ms")[0]) for line in lines if " ms in" in line]
    assert "MIOpenDriver conv" in lines[0]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1
    held = orjson.loads(member(out, "manifest.json"))
    assert held["inputs"] == ["log.gz", "profile.jsonl.gz"]
    assert held["machine"]["gpu"] == ["AMD Instinct MI300X"]
    assert set(held["machine"]) == {"gpu", "gfx", "HIP", "MIOpen"}
    for name, values in held["machine"].items():
        if not values:
            assert name in said.partition("not stated: ")[2].partition(";")[0]
    assert held["files"][1]["format"].startswith("rocpd")
    for command in (["report"], ["ops"], ["layers"], ["compare", str(out)]):
        printed(*command, out)
    again = tmp_path / "again.zip"
    assert invoked("bundle", out, "-o", again, "-q").exit_code == 0
    assert links(analysed([str(again)])) == links(analysed([str(out)]))


@pytest.mark.parametrize("below", ["", "a"])
def test_an_archive_in_a_folder_is_named(below: str, tmp_path: Path) -> None:
    """It is unpacked for the analysis alone: its files are gone when the bundle reads them."""
    place = tmp_path / "job" / below
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / "run.zip", "w") as archive:
        archive.write(kineto_file(tmp_path, rows()), "trace.json")
    said = stderr_of(invoked("bundle", tmp_path / "job", "-o", tmp_path / "bug.zip"), 1)
    assert said == f"mio2trace: {place / 'run.zip'}: an archive in a folder; expected the archive's own path\n"


@pytest.mark.parametrize("cut", [False, True])
def test_a_bundle_repeats_the_problems_of_its_files(cut: bool, tmp_path: Path) -> None:
    """A row that cannot be read, and an end that is missing, also fail `--strict` from the bundle."""
    path, out = kineto_file(tmp_path, [*rows(), rows()[-1] | {"ts": "x"}]), tmp_path / "bundle.zip"
    if cut:
        path.write_bytes(path.read_bytes()[:-40])
    make([str(path)], str(out), OPTIONS)
    own, made = ({note.kind: note.count for note in mio2trace.analyse([one]).notes.problems} for one in (path, out))
    assert own == made != {}
    codes = [invoked("convert", str(one), "-o", str(tmp_path / "o.json"), "--strict").exit_code for one in (path, out)]
    assert codes == [1, 1]


def test_raw_keeps_the_files_and_warns(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(LOG)
    out = tmp_path / "bug.zip"
    done = invoked("bundle", tmp_path / "run.log", "-o", out, "--raw")
    assert "problem: raw/ holds the unchanged files" in done.stderr
    assert member(out, "raw/0-run.log") == LOG
    assert len(mio2trace.analyse(out).inputs) == 1


def test_check_lists_what_was_kept_for_a_person_to_read(tmp_path: Path) -> None:
    """A word of the program's own is there, numbers and names of MIOpen's are not."""
    (tmp_path / "run.log").write_text(LOG + "training Zaphod on 4711 pictures, miopenConvolutionForward\n")
    out = tmp_path / "bug.zip"
    done = invoked("bundle", tmp_path / "run.log", "-o", out, "--check", "-q")
    words = {line.split()[1] for line in done.stdout.splitlines()}
    assert {"Zaphod", "pictures"} <= words
    assert not {"4711", "miopenConvolutionForward", "(path)"} & words


def test_the_number_of_a_process_in_a_files_name_stays_and_the_rest_goes(shared: Path, tmp_path: Path) -> None:
    """It tells whose log it is."""
    twins = shared / "samples/rocm-twins/resnet-immediate-2ranks"
    files = [shutil.copy(log, tmp_path / f"canary-{log.name}") for log in sorted(twins.glob("run.rank*.log*"))]
    out = tmp_path / "bug.zip"
    make([*map(str, files), *map(str, sorted((twins / "rocpd").iterdir()))], str(out), OPTIONS)
    names = [name for name, _ in members(out)]
    assert [name for name in names if "log" in name] == ["log-rank0.gz", "log-rank1.gz"]
    assert not any(leaks(name) for name in names)


def test_architectures_and_versions_are_those_that_log_and_kernels_state() -> None:
    """MIOpen's line of versions, a database's name with compute units behind, Tensile's ISA; no other word."""
    texts = {
        "version": "HIP version 7.2.26015, MIOpen version 3.5.1.5b515cf1bc",
        "other": "Unable to find file: gfx942304.HIP.3_5_1.ufdb.txt, nogfx908, gfx12 and gfx1100",
    }
    log = MiopenLog(
        source=0,
        records=tuple(
            Message(source=0, line=1, level="Info", function="", text=text, kind=kind) for kind, text in texts.items()
        ),
    )
    kernels = ("Cijk_Ailk_Bljk_SB_MT128x64x16_ISA90a_X", "gemm_ISA12")
    profile = Profile(
        source=0, records=2, activities=tuple(Activity(at, "kernel", name) for at, name in enumerate(kernels)),
        queues=(), devices=(Device(index=0, name="gpu 0"),), clocks=(Clock("opaque"),),
    )  # fmt: skip
    assert versions([profile], [log], ["AMD Instinct MI250X"]) == {
        "gpu": ["AMD Instinct MI250X"], "gfx": ["gfx1100", "gfx90a", "gfx942"], "HIP": ["7.2.26015"],
        "MIOpen": ["3.5.1.5b515cf1bc"],
    }  # fmt: skip


def test_a_recorded_runs_machine_is_told_and_nothing_else_of_its_manifest(tmp_path: Path) -> None:
    """An archive may be anybody's."""
    manifest = {
        "schema": "mio2trace archive 1",
        "inputs": ["run.log"],
        "machine": {
            "gpus": ["gfx942"],
            "kernel": "canaryuser@canaryhost",
            "/home/canaryuser/x": ["/home/canaryuser/y"],
        },
        "variables": {"MIOPEN_FIND_MODE": "FAST", "CANARY": "x", "MIOPEN_USER_DB_PATH": "/home/canaryuser"},
        "command": "canary",
    }
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        archive.writestr("manifest.json", orjson.dumps(manifest))
        archive.writestr("run.log", LOG)
    out = tmp_path / "bug.zip"
    make([str(tmp_path / "run.zip")], str(out), OPTIONS)
    told = orjson.loads(member(out, "manifest.json"))["recorded"]
    assert told["machine"]["gpus"] == ["gfx942"]
    assert told["variables"] == {"MIOPEN_FIND_MODE": "FAST", "MIOPEN_USER_DB_PATH": "(set)"}
    assert_nothing_leaks(out)


def places(*files: Path) -> list[Clock]:
    """The clock of each profile in the files."""
    return [profile.clocks[0] for run in mio2trace.analyse(files).runs for profile in run.profiles]


@pytest.mark.parametrize("form", ["rocpd", "PyTorch, times since an unknown zero"])
def test_clocks_of_two_bundles_are_of_two_places(form: str, tmp_path: Path) -> None:
    """Each bundle calls its first machine ``machine 1``; a clock of which only the file is known is of no machine."""
    files = [tmp_path / f"rank{number}.{'db' if form == 'rocpd' else 'json'}" for number in (0, 1)]
    for number, file in enumerate(files):
        if form == "rocpd":
            file.write_bytes(rocpd_made.database(rocpd_made.tables("3.0.5", pid=100 + number)))
        else:
            kineto_file(tmp_path, rows(1_000_000), file.name, base=None, distributedInfo={"rank": number})
    own = places(*files)
    assert [clock.is_of_a_file for clock in own] == [form != "rocpd"] * 2
    bundles = [tmp_path / name for name in ("both.zip", "one.zip", "other.zip")]
    for bundle, of in zip(bundles, (files, files[:1], files[1:]), strict=True):
        make([*map(str, of)], str(bundle), AnalysisOptions())
    together, apart = places(bundles[0]), places(*bundles[1:])
    assert [clock.is_of_a_file for clock in (*together, *apart)] == [form != "rocpd"] * 4
    assert len({clock.scope for clock in together}) == len({clock.scope for clock in own})
    assert len({clock.scope for clock in apart}) == 2


def test_nothing_is_left_behind_and_an_output_stays_where_a_bundle_fails(tmp_path: Path) -> None:
    (tmp_path / "bug.zip").write_bytes(b"before")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "none.bin").write_bytes(b"\x00\x01" * 50)
    command = [sys.executable, "-m", "mio2trace", "bundle", "none.bin", "-o", "bug.zip"]
    given = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT / "timeline")}
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert (tmp_path / "bug.zip").read_bytes() == b"before"
    assert not list((tmp_path / "tmp").iterdir())


# ---- the form of the records


def records_of(data: bytes, notes: Notes | None = None) -> list[Any]:
    with contextlib.closing(Source("-", 3, notes or Notes(), stdin=io.BytesIO(data))) as source:
        return list(bundled.read(source, ReadOptions(), source.notes))


ALEXNET = [ROOT / "traces" / "alexnet-b1-miopen29" / name for name in ("run.log.gz", "prof.json.gz")]


@pytest.fixture(scope="module")
def written() -> bytes:
    inputs = mio2trace.analyse(ALEXNET).inputs
    return b"".join(record_lines("x", [record for file in inputs for record in file.records]))


def test_records_are_read_as_they_were_written(written: bytes, shared: Path) -> None:
    """Of every kind, but for the number of the input, which is the new one's; what was one object is one."""
    tfprof = shared / "samples/tfprof/gpu_streams_resnet_v2"
    texts = min((tfprof / "scope_text").iterdir())
    others = (shared / "samples/rocm/kineto_mi300x_vit_infer.json.gz", tfprof / "profile.tfprof", texts)
    for files in (ALEXNET, *([path] for path in others)):
        own = [record for file in mio2trace.analyse(files).inputs for record in file.records]
        for one, other in zip(own, records_of(b"".join(record_lines("x", own))), strict=True):
            assert b"".join(record_lines("x", [other])) == b"".join(record_lines("x", [one]))
            assert other.source == 3
    profile = next(record for record in records_of(written) if isinstance(record, Profile))
    assert len({id(one.opencl) for one in profile.activities}) == len({one.opencl for one in profile.activities})


def test_records_that_are_cut_off_are_read_up_to_there(written: bytes) -> None:
    notes = Notes()
    assert records_of(written[: len(written) // 3], notes)
    assert any("file cut off: read up to there" in str(note) for note in notes)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"schema":"mio2trace records 2"}\n', "expected 'mio2trace records 1'"),
        (b'{"schema":"mio2trace records 1"}\n', "no record"),
        (b'{"schema":"mio2trace records 1"}\nNothing {}\n', "no record"),
        (b'{"schema":"mio2trace records 1"}\n.activities {}\n', "no record"),
        (b'{"schema":"mio2trace records 1"', "line 1: "),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(line: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        records_of(line)


def test_a_place_where_nothing_is_and_a_field_of_another_type_are_refused(written: bytes) -> None:
    assert b'"queue":0' in written
    with pytest.raises(InputError, match="queue 77 of 1"):
        records_of(written.replace(b'"queue":0', b'"queue":77', 1))
    for value, said in ((b'"x"', "Expected `int`"), (b"9223372036854775808", "a number of more than 63 bits")):
        notes = Notes()
        records_of(written.replace(b'"queue":0', b'"queue":' + value, 1), notes)
        assert any(said in str(note) for note in notes)


@pytest.mark.parametrize("form", ["rocpd", "rpd", "table"])
def test_files_without_any_record_are_no_bundle_and_spoil_none(form: str, tmp_path: Path) -> None:
    """An archive that no command takes is not written; beside others such a file is left out, and said."""
    if form == "table":
        empty = tmp_path / "7_kernel_trace.csv"
        empty.write_text('"Kind","Agent_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n')
    else:
        empty = tmp_path / "empty.db"
        made, tables = rocm_made.rpd, ["rocpd_op", "rocpd_api"]
        if form == "rocpd":
            made, tables = rocm_made.rocpd, ["rocpd_kernel_dispatch", "rocpd_region", "rocpd_memory_copy"]
        empty.write_bytes(made(rocm_made.run(), "; ".join(f"DELETE FROM {table}" for table in tables)))
    out = tmp_path / "out.zip"
    alone = invoked("bundle", empty, "-o", out)
    said = f"mio2trace: {empty.name}: no record in it; expected kernels, calls or lines of a log\n"
    assert (alone.exit_code, alone.stderr, out.exists()) == (1, said, False)
    (tmp_path / "whole.db").write_bytes(rocm_made.rocpd(rocm_made.run()))
    said = stderr_of(invoked("bundle", empty, tmp_path / "whole.db", "-o", out), 0)
    assert f"problem: file without any record left out of the bundle ({empty.name})" in said
    assert invoked("kernels", out).exit_code == 0
