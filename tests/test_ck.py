"""CK's records of experiments, and which of their repetitions and points is taken."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mio2trace import analyse, convert
from mio2trace.answer import of_logs
from mio2trace.model.log import FrameworkLog, LocalTime
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError, Notes
from mio2trace.readers import READERS, ck
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.source import Source
from tests.conftest import shared_folder
from tests.small_runs import as_json, kinds, plain, read, small

SEVERAL = "one of several repetitions taken, counted from 0 (--repetition chooses)"
NONE_GOOD = "no repetition with data says that it succeeded: took the first with data"


def entry(index: int = 0, direction: str = "forward", label: str = "00: conv1", **fields: Any) -> dict[str, Any]:
    common = {"direction": direction, "index": index, "label": label, "time_ms": 0.5}
    return common | {"timestamp": "1103 15:39:29.318205"} | fields


LAYERS = [entry(), entry(direction="backward"), entry(1, label="01: ip1")]


def read_json(folder: Path, value: Any, notes: Notes | None = None, repetition: int | None = None) -> Records:
    path = folder / "record"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    assert [reader.sniff(path.read_bytes()) for reader in READERS].count(True) == 1
    with contextlib.closing(Source(str(path), 0, Notes() if notes is None else notes)) as source:
        return ck.repetitions(source, repetition, ReadOptions(), source.notes)[0][0]


def the_log(records: Records) -> FrameworkLog:
    return next(record for record in records if isinstance(record, FrameworkLog))


def record(*runs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"characteristics_list": [{"run": run} for run in runs], **fields}


def run(number: int = 0, success: str | None = "yes", **fields: Any) -> dict[str, Any]:
    """A run whose first layer took ``number`` ms."""
    said = {} if success is None else {"run_success": success}
    return {"per_layer_info": [entry(time_ms=number)], **said, **fields}


@pytest.mark.parametrize(
    "value",
    [
        LAYERS,
        {"per_layer_info": LAYERS, "time_fw_ms": 6.57},
        {"time_fw_ms": 6.57, "dvdt_prof": [], "per_layer_info": LAYERS},
        record({"per_layer_info": LAYERS, "run_success": "yes"}),
        {"choices": {"a": 1}, "features": {}, **record({"per_layer_info": LAYERS, "run_success_bool": True})},
    ],
    ids=["bare array", "timer", "timer with an empty profile", "record", "record with its list late"],
)
def test_layers_are_read_wherever_they_stand(tmp_path: Path, value: Any) -> None:
    stamp = LocalTime(0, 11, 3, ((15 * 60 + 39) * 60 + 29) * 10**9 + 318_205_000)
    notes = Notes()
    layers = the_log(read_json(tmp_path, value, notes)).layers
    assert {(item.printed_ns, item.stamp) for item in layers} == {(500_000, stamp)}
    named = [(item.index, item.layer, item.direction) for item in layers]
    assert named == [(0, "conv1", "forward"), (0, "conv1", "backward"), (1, "ip1", "forward")]
    assert not notes.problems


def test_a_record_may_hold_profile_layers_and_facts_of_one_run(tmp_path: Path) -> None:
    """Averages, the iterations asked for, and the device's name, which may end in a NUL."""
    value = record(
        run(1, dvdt_prof=small(), time_fw_ms=6.5, time_bw_ms=0, REAL_ENV_CK_CAFFE_ITERATIONS="2"),
        features={"platform": {"gpu": {"name": "Mali-T860\0"}}},
    )
    records = read_json(tmp_path, value)
    profile = next(found for found in records if isinstance(found, Profile))
    assert plain(profile) == plain(read(as_json(small())))
    log = the_log(records)
    assert (log.average_forward_ns, log.average_backward_ns, log.iterations) == (6_500_000, 0, 2)
    assert log.device_name == "Mali-T860"


@pytest.mark.parametrize("value", ["", None, "x", [], 0, -1, "1e3"])
def test_iterations_that_are_no_number_are_unknown(tmp_path: Path, value: Any) -> None:
    """CK keeps what was in the environment."""
    assert the_log(read_json(tmp_path, run(REAL_ENV_CK_CAFFE_ITERATIONS=value))).iterations is None


@pytest.mark.parametrize(
    ("runs", "wanted", "taken", "said"),
    [
        ([run(1)], None, 1, []),
        ([run(1), run(2)], None, 1, [SEVERAL]),
        ([run(1, "no"), run(2)], None, 2, [SEVERAL]),
        ([{"run_success": "yes"}, run(2)], None, 2, [SEVERAL]),
        ([run(1, per_layer_info=[]), run(2)], None, 2, [SEVERAL]),
        ([run(1, "no"), run(2, "no")], None, 1, [NONE_GOOD]),
        ([run(1, None)], None, 1, [NONE_GOOD]),
        ([run(1), run(2)], 1, 2, []),
        ([run(1), run(2, "no")], 1, 2, ["the chosen repetition does not say that it succeeded"]),
        ([run(1), run(2)], 0, 1, []),
    ],
)  # fmt: skip
def test_the_repetition_taken_is_the_first_good_one_or_the_one_asked_for(
    tmp_path: Path, runs: list[dict[str, Any]], wanted: int | None, taken: int, said: list[str]
) -> None:
    log = the_log(read_json(tmp_path, record(*runs), notes := Notes(), wanted))
    assert log.layers[0].printed_ns == taken * 1_000_000
    assert list(kinds(notes)) == said


def test_a_stamp_that_is_none_is_no_stamp(tmp_path: Path) -> None:
    """CK's placeholder is not the first of January."""
    stamps = ["0101 00:00:00.000000", "", "1303 15:39:29.318205", "1103 15:39", "0230 01:01:01"]
    log = the_log(read_json(tmp_path, [entry(timestamp=stamp) for stamp in stamps]))
    assert [layer.stamp for layer in log.layers] == [None] * len(stamps)


def test_a_layer_with_two_directions_is_one_layer(tmp_path: Path) -> None:
    """The answer counts layers and names the directions in the sum; it counts the times if a layer lacks one."""
    path = tmp_path / "timer.json"
    both, one = "3 times that the log prints for 2 layers, forward and backward;", "the times that the log prints for"
    for layers, says in ((LAYERS, both), (LAYERS[::2], f"{one} 2 layers;")):
        path.write_text(json.dumps(layers))
        (section,) = of_logs(analyse([path]).run)
        assert f"the sum of {says}" in section.verdict
        assert not section.beyond()  # no kernels are known that could overlap


def test_a_label_gives_the_name(tmp_path: Path) -> None:
    """Blanks and signs as TensorRT's layers have them; never nothing."""
    labels = ("151: prob", "01: conv1 + relu1", "00: a: b", "conv1", "")
    log = the_log(read_json(tmp_path, [entry(label=label) for label in labels]))
    assert [one.layer for one in log.layers] == ["prob", "conv1 + relu1", "a: b", "conv1", "layer 0"]


@pytest.mark.parametrize(
    "bad",
    [
        {"time_ms": -1}, {"time_ms": 1e13}, {"time_ms": 10**400}, {"time_ms": "1"}, {"time_ms": None}, {"label": 5},
        {"index": -1}, {"index": 10**9}, {"index": "x"}, {"direction": "sideways"},
    ],
)  # fmt: skip
def test_error_one_bad_layer_entry_is_lost_alone(tmp_path: Path, bad: dict[str, Any]) -> None:
    notes = Notes()
    log = the_log(read_json(tmp_path, {"per_layer_info": [entry(), entry(**bad), entry(2)]}, notes))
    assert [layer.index for layer in log.layers] == [0, 2]
    (note,) = list(notes)
    assert note.kind == "layer entry that could not be read"
    assert note.places[0].startswith("record: $.per_layer_info[1]: ")


@pytest.mark.parametrize(
    ("value", "wanted", "message"),
    [
        (record(run(), run()), 2, "^record: no repetition 2; it has 2, counted from 0$"),
        (run(), 1, "^record: no repetition 1; it has 1, counted from 0$"),
        (record({}, {}), None, "^record: .*: 2 repetitions, none with per_layer_info or dvdt_prof$"),
        (record(), None, "^record: .*: 0 repetitions, none with"),
        (record(run(per_layer_info="x")), None, "^record: .*per_layer_info: expected an array of layers"),
        ({"characteristics_list": {}}, None, "^record: not a readable CK record: Expected `array | null`"),
        ({"per_layer_info": []}, None, "^record: [$]: neither per_layer_info nor dvdt_prof"),
        ('{"per_layer_info": [{"label": "a"', None, "^record: not a readable CK record: file cut off"),
        ('[{"label": "a"}]', None, "^record: [$]: no layer entry can be read"),
        ('[{"label": "a"', None, "^record: [$]: expected an array of layers: file cut off"),
        ('{"per_layer_info": ' + "[" * 9999 + "]" * 9999 + "}", None, "^record: "),
    ],
)
def test_error_a_record_without_data_is_one_line(tmp_path: Path, value: Any, wanted: int | None, message: str) -> None:
    with pytest.raises(InputError, match=rf"(?=^[^\n]*$){message}"):
        read_json(tmp_path, value, repetition=wanted)


def test_kernel_times_without_a_time_line_are_said_not_to_be_drawn(tmp_path: Path) -> None:
    """Programs of a newer CK store sums only."""
    read_json(tmp_path, run(execution_time_list_opencl=[{"kernel_name": "k", "kernel_time": 5}]), notes := Notes())
    assert list(kinds(notes)) == ["kernel times without a time line (execution_time_list_opencl) not drawn"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two entries: one of two points, one of one."""
    for name, tags, points in (("alex", ["a", "cpu"], "12"), ("squeeze", ["a", "gpu"], "3")):
        folder = tmp_path / "repo" / "experiment" / name
        (folder / ".cm").mkdir(parents=True)
        (folder / ".cm" / "meta.json").write_text(json.dumps({"tags": tags}))
        for point in points:
            (folder / f"ckp-{point * 16}.0001.json").write_text(json.dumps(record(run(int(point)))))
            (folder / f"ckp-{point * 16}.flat.json").write_text("{}")
    return tmp_path / "repo"


@pytest.mark.parametrize(
    ("below", "tags", "several"),
    [
        *(
            ("", tags, several)
            for tags, several in (((), True), (("a",), True), (("gpu",), False), (("gpu", "a"), False))
        ),
        ("experiment", ("cpu",), True),
        ("experiment/squeeze", (), False),
    ],
)
def test_one_point_of_a_folder_is_taken(repository: Path, below: str, tags: tuple[str, ...], several: bool) -> None:
    """A repository, a module's folder or an entry; tags choose as `ck search` does."""
    taken = f"alex/ckp-{16 * '1'}" if several else f"squeeze/ckp-{16 * '3'}"
    path = ck.locate(str(repository / below), tags, notes := Notes())
    assert path == str(repository / "experiment" / f"{taken}.0001.json")
    (note,) = list(notes)
    assert taken in note.places[0]
    assert ("several" in note.kind) == several
    assert not note.problem


def test_the_choice_of_a_point_is_in_no_trace(repository: Path) -> None:
    """Names of entries are paths; the notes in the metadata are kinds only."""
    metadata = convert(str(repository), tags=("a",)).metadata
    assert "alex" not in json.dumps(metadata)
    assert "several points fit: took the first (--tags chooses)" in metadata["notes"]


def test_error_directories_without_a_point_are_refused(repository: Path) -> None:
    """Empty, too deep, or without the tags; damaged tags are none."""
    with pytest.raises(InputError, match=r"^repo: none of 3 points has the tags x,a$"):
        ck.locate(str(repository), ("x", "a"), Notes())
    for damaged in (b"\xff", b"{", b"[]", b'{"tags": 5}'):
        (repository / "experiment" / "squeeze" / ".cm" / "meta.json").write_bytes(damaged)
        with pytest.raises(InputError, match="none of 3 points has the tags gpu"):
            ck.locate(str(repository), ("gpu",), Notes())
    with pytest.raises(
        InputError, match=r"without a profile, a log or ckp-\*\.0001\.json; expected the folder of a run or a CK entry$"
    ):
        ck.locate(str(repository.parent), (), Notes())


def all_samples() -> list[str]:
    samples = shared_folder() / "samples"
    paths = [path for part in ("ck", "dvdt") for path in (samples / part).rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(samples)) for path in paths)


@pytest.mark.shared
@pytest.mark.parametrize("name", all_samples())
def test_every_sample_converts_or_is_refused_in_one_line(shared: Path, name: str) -> None:
    """Also those that are no input at all: indices, truth, CK's own files."""
    path = shared / "samples" / name
    inputs = (".prof.json", ".log", ".0001.json", "sample.json", "per_layer_info.json", "timer.json")
    if not name.endswith(inputs) or path.name == "squeezenet11-b1-fwd-tz.tmp-ck-timer.json":
        with pytest.raises(InputError, match=rf"^{re.escape(path.name)}: [^\n]*$"):
            convert(path, check=True)
    else:
        assert convert(path, check=True).metadata["inputs"][0]["size"] == path.stat().st_size


@pytest.mark.shared
@pytest.mark.parametrize("repository", ["ck-caffe-firefly-rk3399", "ck-caffe-nvidia-tx1", "ck-caffe-nvidia-gtx1080"])
def test_real_repositories_are_searched(shared: Path, repository: str) -> None:
    root = shared / "samples" / "ck" / repository
    for folder in (root, root / "experiment", *(path.parent for path in root.glob("*/*/ckp-*.0001.json"))):
        assert Path(ck.locate(str(folder), (), Notes())).name.endswith(".0001.json")
    meta = sorted(root.glob("*/*/.cm/meta.json"))[-1]
    tags = tuple(json.loads(meta.read_bytes())["tags"])
    assert Path(ck.locate(str(root), tags, Notes())).parent == meta.parent.parent
