"""TensorFlow's profiles: what is read, against TensorFlow's own output; ``mio2trace tfprof`` and its options."""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import io
import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mio2trace.model.tf import Execution, Printed, TfNode, TfProfile, TfView
from mio2trace.notes import InputError, Notes
from mio2trace.readers import READERS, detect, run_log
from mio2trace.readers.base import Reader, ReadOptions
from mio2trace.readers.tf import profile_proto as profile_reader
from mio2trace.readers.tf import step_stats, views
from mio2trace.reports import print_table, tfprof
from mio2trace.reports import tfprof as scope
from mio2trace.reports.tfprof import COLUMNS
from mio2trace.source import Source
from tests.commands import invoked, stderr_of
from tests.conftest import shared_folder
from tests.often import present, saved
from tests.small_runs import kinds
from tests.tf_files import (
    CPU,
    GPU,
    KERNELS,
    START_US,
    node,
    number,
    packed,
    pairs,
    profile_node,
    profile_proto,
    random_profile,
    run_metadata,
    sized,
)

SETS = ("gpu_streams_resnet_v2", "tf18_bench_resnet50_v2", "tf215_resnet_v2")
ONE_STEP = ("trace_file.json.gz", "trace_file_stepstats.pbtxt.gz", "run_metadata.pb")
ALL_COLUMNS = (
    "bytes", "micros", "accelerator_micros", "cpu_micros", "peak_bytes", "residual_bytes", "output_bytes", "params",
    "float_ops", "device", "occurrence", "op_types", "input_shapes",
)  # fmt: skip
ALL = scope.ScopeOptions(step=0, show_name_regexes=(".*",))
VARIATIONS: dict[str, scope.ScopeOptions] = {
    "step_0": msgspec.structs.replace(ALL, select=ALL_COLUMNS),
    "step_avg": msgspec.structs.replace(ALL, select=ALL_COLUMNS, step=None),
    "var_depth4_minmicros20": msgspec.structs.replace(ALL, max_depth=4, minima=(("micros", 20),)),
    "var_account_conv": msgspec.structs.replace(ALL, account_type_regexes=("Conv2D.*", "MaxPool")),
    "var_order_micros": msgspec.structs.replace(ALL, order_by="micros"),
    "var_start_trim_hide": msgspec.structs.replace(
        ALL,
        start_name_regexes=(".*/gradients", ".*/xentropy"),
        trim_name_regexes=(".*conv1_grad", ".*/conv1"),
        hide_name_regexes=(".*Shape.*",),
    ),
    "var_displayed_only": scope.ScopeOptions(step=0, account_displayed_op_only=True),
}
"""The options of the files in ``scope_all_nodes``, as the samples' INDEX tells them."""
TIES_IN_ANY_ORDER = {("tf18_bench_resnet50_v2", "var_order_micros")}
seeds = st.integers(0, 2**32 - 1).map(Random)


def sample(name: str) -> Path:
    folder = shared_folder() / "samples" / "tfprof" / name
    return next(path for path in (folder / "profile.tfprof", folder / "profile.tfprof.gz") if path.exists())


def content(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def from_file(path: Path) -> TfProfile:
    notes = Notes()
    with contextlib.closing(Source(str(path), 0, notes)) as source:
        [profile] = detect(source).read(source, ReadOptions(), notes)
    assert isinstance(profile, TfProfile)
    assert list(notes) == []
    return profile


def read(reader: Reader, data: bytes, name: str = "file", notes: Notes | None = None) -> tuple[Any, Notes]:
    """The one record that a reader makes of the bytes."""
    notes = notes or Notes()
    with contextlib.closing(Source("-", 0, notes, stdin=io.BytesIO(data))) as source:
        source.name = name
        [record] = reader.read(source, ReadOptions(), notes)
    return record, notes


def csv_rows(series: Iterable[tfprof.Series]) -> str:
    return "".join(print_table(tfprof.table(list(series)), "csv")).split("\n", 1)[1]


Profiles = Callable[[str], TfProfile]


@pytest.fixture(scope="module")
def profiles(shared: Path) -> Profiles:
    """A sample's profile, read once."""
    return functools.cache(lambda name: from_file(sample(name)))


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_the_table_is_the_expected_one_digit_by_digit(shared: Path, profiles: Profiles, name: str) -> None:
    """Over the unrounded integers; and the notebook's own numbers, from the profile and from the printed text."""
    folder = shared / "samples" / "tfprof" / name
    profile = profiles(name)
    exact = content(folder / "expected_exact.csv")
    assert csv_rows(tfprof.profile_series(profile, profile.steps, (), "exact")) == exact
    assert exact.count("\n") >= 95
    # With its old factors on rounded text, but no operation lost.
    expected = content(folder / "expected_seed_all.csv")
    assert csv_rows(tfprof.profile_series(profile, profile.steps, (), "notebook")) == expected
    texts = [folder / "scope_text" / f"step_{step}.txt" for step in range(10)]
    printed: list[TfView] = [read(views, path.read_bytes(), path.name)[0] for path in texts]
    assert [view.step for view in printed] == list(range(10))
    assert csv_rows(tfprof.view_series(printed, (), "notebook")) == expected


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_every_integer_of_every_step(shared: Path, profiles: Profiles, name: str) -> None:
    """Self and total of each shown row, in each step and on average."""
    tree = scope.ScopeTree(profiles(name))
    [path] = (shared / "samples" / "tfprof" / name).glob("exact_per_step.csv*")
    expected = list(csv.DictReader(io.StringIO(content(path))))
    steps = {row["step"] for row in expected}
    assert len(steps) == 11
    quantities: tuple[scope.Quantity, ...] = ("bytes", "micros", "accelerator_micros", "cpu_micros")
    for step in steps:
        found = []
        for row in scope.flat(tree.rows(scope.ScopeOptions(step=None if step == "avg" else int(step)))):
            own = [present(row.own)[scope.QUANTITIES.index(quantity)] for quantity in (*quantities, "occurrence")]
            found.append((row.name, *own, *map(row.number, quantities)))
        keys = [*(f"self_{quantity}" for quantity in quantities), "self_run_count"]
        keys += [f"total_{quantity}" for quantity in quantities]
        wanted = [(row["name"], *(int(row[key]) for key in keys)) for row in expected if row["step"] == step]
        assert found == wanted
        assert len(found) >= 95


@pytest.mark.shared
@pytest.mark.parametrize("variation", VARIATIONS)
@pytest.mark.parametrize("name", SETS)
def test_the_whole_scope_view_is_tensorflows(shared: Path, profiles: Profiles, name: str, variation: str) -> None:
    """Every node, every column, and each of the options."""
    options = VARIATIONS[variation]
    root = scope.ScopeTree(profiles(name)).rows(options)
    lines = "".join(tfprof.text(root, options)).splitlines()
    expected = content(shared / "samples" / "tfprof" / name / "scope_all_nodes" / f"{variation}.txt.gz")
    # One word of a help line is misspelt in TensorFlow 1.8 and mended in 2.15, whose spelling ours is.
    wanted = expected.replace("(not necessarilty allocated", "(not necessarily allocated").splitlines()
    if (name, variation) in TIES_IN_ANY_ORDER:
        lines.sort()
        wanted.sort()
    assert lines == wanted


@pytest.mark.shared
def test_the_consoles_form_of_the_view(shared: Path, profiles: Profiles) -> None:
    """Options before, end after; a live profiler prints the same without them."""
    folder = shared / "samples" / "tfprof" / "tf215_resnet_v2"
    options = msgspec.structs.replace(ALL, max_depth=4, minima=(("micros", 100),), order_by="micros")
    banner = msgspec.structs.replace(options, select=("accelerator_micros", "bytes", "cpu_micros", "micros"))
    root = scope.ScopeTree(profiles("tf215_resnet_v2")).rows(options)
    assert "".join(tfprof.text(root, banner, banner=True)) == content(folder / "stdout_form.txt")
    assert "".join(tfprof.text(root, options)) == content(folder / "live_profiler_step0.txt")


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_every_execution_is_read(shared: Path, profiles: Profiles, name: str) -> None:
    """Step, start, duration, device, kind, node, op: as TensorFlow's own protobuf classes read them."""
    path = shared / "samples" / "tfprof" / name / "expected_execs.csv.gz"
    expected = sorted(tuple(row) for row in csv.reader(io.StringIO(content(path))))
    header = ("step", "start_us", "dur_us", "device", "kind", "node", "op")
    found = [
        (str(step.step), str(one.start_ns // 1000), str(one.dur_ns // 1000), one.device, one.kind, node.name, node.op)
        for node in profiles(name).nodes
        for step in node.steps
        for one in step.executions
    ]
    assert sorted([*found, header]) == expected
    assert len(expected) > 3000


@pytest.mark.shared
@pytest.mark.parametrize("name", ["gpu_streams_resnet_v2", "tf215_resnet_v2"])
def test_one_step_is_the_same_in_each_form(shared: Path, name: str) -> None:
    """RunMetadata and StepStats give equal records; durations of the timeline include what tfprof leaves out."""
    folder = shared / "samples" / "tfprof" / name
    timeline, text, metadata = (from_file(folder / file) for file in ONE_STEP)
    assert metadata == text
    assert len(metadata.nodes) > 300
    assert any(step.memory[0].output_bytes for node in metadata.nodes for step in node.steps if step.memory)
    keys = [
        sorted(
            (node.name, node.op, one.device, one.start_ns)
            for node in profile.nodes
            for step in node.steps
            for one in step.executions
        )
        for profile in (metadata, timeline)
    ]
    assert keys[0] == keys[1]


@pytest.mark.shared
def test_a_step_of_the_profile_has_the_memory_that_its_statistics_have(shared: Path, profiles: Profiles) -> None:
    """The sums over allocators and outputs, checked where the shapes fix them: ops that ask the same in every step."""
    name = "tf215_resnet_v2"
    one_step = from_file(shared / "samples" / "tfprof" / name / "run_metadata.pb")
    by_name = {node.name: node for node in one_step.nodes}
    compared = 0
    for one in profiles(name).nodes:
        held = {step.memory[0].requested_bytes for step in one.steps if step.memory}
        other = by_name.get(one.name)
        if len(held) == 1 and len(one.steps) == 10 and other is not None and other.steps[0].memory:
            assert {other.steps[0].memory[0].requested_bytes} == held, one.name
            compared += bool(held - {0})
    assert compared > 100


@pytest.mark.shared
def test_the_op_view_of_a_console(shared: Path) -> None:
    """Rows between the console's other lines, with their units."""
    view, _ = read(views, (shared / "samples" / "tfprof" / "tf18_bench_resnet50_v2" / "console.txt").read_bytes())
    assert (view.view, view.step, len(view.rows)) == ("op", -1, 21)
    [own] = [row.own for row in view.rows if row.name == "Mul"]
    assert (own["bytes"], own["micros"]) == (Printed(10215, "MB"), Printed(7467, "ms"))
    cells = {row["name"]: row for row in tfprof.table(tfprof.view_series([view], (), "exact"), op_view=True).rows}
    assert cells["Mul"] == {
        "name": "Mul", "op": "Mul", "memory_mean_kb": 102150.0, "total_mean_us": 74670.0, "accelerator_mean_us": 0.0,
        "cpu_mean_us": 74670.0,
    }  # fmt: skip


@pytest.mark.shared
def test_each_file_is_of_one_form_only(shared: Path) -> None:
    """Whatever it is called; plain text that is no other's is a log's."""
    files = [
        path for name in SETS for path in sorted((shared / "samples" / "tfprof" / name).iterdir()) if path.is_file()
    ]
    files += [shared / "samples" / "tfprof" / name / "scope_text" / "step_0.txt" for name in SETS]
    assert len(files) > 25
    for path in files:
        source = Source(str(path), 0, Notes())
        known = [one.NAME for one in READERS if one is not run_log and one.sniff(source.head)]
        source.close()
        is_one = (
            "profile.tfprof" in path.name or path.name in ONE_STEP or path.name.startswith(("step", "stdout", "liv"))
        )
        assert len(known) == is_one, path


@given(seeds, st.booleans())
def test_what_was_written_is_read(rng: Random, pack: bool) -> None:
    profile = random_profile(rng)
    found, notes = read(profile_reader, profile_proto(profile, pack=pack))
    assert found == profile
    assert list(notes) == []


@given(seeds)
def test_a_printed_view_gives_the_numbers_back_up_to_their_rounding(rng: Random) -> None:
    """What is printed is read again, row by row."""
    profile = random_profile(rng)
    options = msgspec.structs.replace(ALL, step=profile.steps[0])
    root = scope.ScopeTree(profile).rows(options)
    named = [row for row in scope.flat(root) if " " not in row.name]
    if not named:
        return
    view, _ = read(views, "".join(tfprof.text(root, options)).encode())
    assert [row.name for row in view.rows] == [row.name for row in named]
    for printed, row in zip(view.rows, named, strict=True):
        for quantity in ("bytes", "micros", "accelerator_micros", "cpu_micros"):
            shown = tfprof.in_exact_units(printed.total[quantity])
            exact = row.number(quantity) / (1000 if quantity == "bytes" else 1)
            assert shown == pytest.approx(exact, rel=0.0051, abs=1e-9)


SMALL = TfProfile(
    source=0,
    steps=(0,),
    nodes=(node("a/x", (0, 5, CPU), (3, 2, CPU)), node("a/y", (5, 7, CPU), memory=1500), node("b")),
)


@pytest.mark.parametrize(
    ("damage", "complaint", "in_a_file"),
    [
        (sized(1, number(1, 1) + sized(2, b"")), "a node without a name", True),
        (sized(1, number(1, 1) + number(2, 7)), "field 2 with wire type 0", True),
        (sized(1, number(1, 1) + sized(2, sized(1, "a" + "/a" * 300))), "more than 200 components", True),
        (sized(1, sized(2, sized(1, "n") + sized(13, "x") + sized(8, "x"))), "field 8 with wire type 2", True),
        (sized(1, sized(2, sized(1, "n") + sized(12, sized(3, sized(5, CPU))))), "field 3 with wire type 2", True),
        (sized(1, sized(2, sized(1, "n") + sized(12, sized(2, sized(5, sized(3, "x")))))), "field 3 with wire", True),
        (sized(1, sized(2, sized(1, "n") + sized(15, sized(2, number(2, 5))))), "field 2 with wire type 0", True),
        (sized(1, sized(2, sized(1, "n") + b"\x0b")), "wire type 3", True),
        (sized(1, sized(2, sized(1, "n") + b"\x62\xff\xff\xff\xff\x7f")), "are left", True),
        (sized(1, sized(2, sized(1, "n") + b"\x40" + b"\xff" * 11)), "more than 10 bytes", True),
        (sized(1, sized(2, sized(1, "n") + b"\x02\x00")), "field number 0", True),
        (number(2, 1) + number(1, 1234), "byte 2: field 1 with wire type 0", True),
        (b"", "no nodes", False),
        (number(2, 1), "no nodes", False),
        (b"\x0a" + b"\xff" * 8 + b"\x7f", "byte 0: a field of 9223372036854775807 bytes where 0 are left", False),
        (b"\x0a", "a field without its content", False),
        (b"\x0b", "wire type 3", False),
    ],
)
def test_a_damaged_node_is_lost_alone(damage: bytes, complaint: str, in_a_file: bool) -> None:
    """It is counted and said; alone in a file it is the reason for refusing it, and no note."""
    notes = Notes()
    with pytest.raises(InputError, match=complaint) as error:
        read(profile_reader, damage, notes=notes)
    assert "\n" not in str(error.value)
    assert not list(notes)
    if in_a_file:
        found, [note] = read(profile_reader, damage + profile_proto(SMALL))
        assert found.nodes == SMALL.nodes
        assert note.kind == "damaged part of a TFProf profile: skipped"
        assert complaint in note.places[0]


def test_times_that_cannot_be_are_passed_over() -> None:
    """Before 1970, beyond all years, of a negative or endless duration, or no pair at all."""
    times = [[0, 5], [-5, 5], [10**18, 5], [START_US, -1], [START_US, 10**15], [START_US], [START_US, 5, 6]]
    execution = b"".join(sized(1, pairs(pair)) for pair in [*times, [START_US, 5]])
    step = sized(12, sized(2, sized(5, sized(1, CPU) + sized(2, execution))))
    found, notes = read(profile_reader, sized(1, sized(2, sized(1, "n") + step)) + sized(3, packed([0])))
    assert found.nodes[0].steps[0].executions == (Execution(CPU, "cpu", START_US * 1000, 5000),)
    assert kinds(notes) == {"execution without a possible time: skipped": len(times)}


def test_shapes_of_inputs_come_from_the_producers_output() -> None:
    """By slot, through the index of the output; unknown where the producer or its shape is."""
    producer = profile_node(TfNode(name="p", op="P", output_shapes=((0, (1,)), (1, (2, 3)))), 1)
    user = profile_node(TfNode(name="u", op="U"), 2, {0: (1, 1), 1: (9, 0)})
    data = b"".join(sized(1, number(1, at) + sized(2, one)) for at, one in ((1, producer), (2, user)))
    found = {node.name: node for node in read(profile_reader, data)[0].nodes}
    assert found["u"].input_shapes == ((0, (2, 3)), (1, ()))


def test_the_frame_that_made_a_node_is_the_innermost_outside_of_tensorflow() -> None:
    """File name and line, without the folder."""
    strings = {1: "/home/me/run.py", 2: "/home/me/net/model.py", 3: "/lib/tensorflow/python/ops/nn.py"}
    frames = b"".join(sized(1, number(6, file) + number(2, line)) for file, line in ((1, 7), (2, 30), (3, 99)))
    inner = profile_node(node("n", (0, 5, CPU)), 0) + sized(10, frames)
    data = sized(1, sized(2, inner)) + b"".join(
        sized(4, number(1, key) + sized(2, value)) for key, value in strings.items()
    )
    assert read(profile_reader, data)[0].nodes[0].place == "model.py:30"


def test_records_become_nodes_as_tfprof_makes_them() -> None:
    """Names cut at a colon, a duration of at least 1 us, one canonical device, sources and starts of 0 left out."""
    device = CPU.replace("cpu", "CPU")
    data = run_metadata(
        {
            device: [
                ("_SOURCE", START_US, 1, "_SOURCE = NoOp()"),
                ("a/x", START_US, 0, "a/x = Conv2D(a, b)"),
                ("late", 0, 4, "late = NoOp()"),
                ("too late", 18_467_495_820_649_032, 3, ""),
                ("latest", 9 * 10**15 - 1, 10**13 - 1, "latest = NoOp()"),
            ],
            GPU.replace("gpu", "GPU"): [
                ("g", START_US + 1, 4, "g = Relu(a/x)"),
                ("a/x", START_US, 9, "a/x = Conv2D(a, b)"),
            ],
            KERNELS: [("g:Relu", START_US + 3, 2, "void relu(float*)@@g:Relu#")],
            f"{GPU}/stream:7": [("g:Relu", START_US + 3, 2, "void relu(float*)@@g:Relu#")],
            f"{GPU}/memcpy": [("e:MEMCPYHtoD", START_US, 2, "MEMCPYHtoD")],
            "/host:strange": [("s", START_US, 2, "")],
        }
    )
    assert step_stats.BYTES.sniff(data)
    profile, notes = read(step_stats.BYTES, data)
    ran = {node.name: (node.op, node.steps[0].executions) for node in profile.nodes}
    start = START_US * 1000
    assert ran == {
        "a/x": ("Conv2D", (Execution(CPU, "cpu", start, 1000),)),
        "g": (
            "Relu",
            (
                Execution(GPU, "cpu", start + 1000, 4000),
                Execution(KERNELS, "accelerator", start + 3000, 2000, "void relu(float*)"),
                Execution(f"{GPU}/stream:7", "stream", start + 3000, 2000, "void relu(float*)"),
            ),
        ),
        "e": ("MEMCPYHtoD", (Execution(f"{GPU}/memcpy", "stream", start, 2000, "MEMCPYHtoD"),)),
        "latest": ("NoOp", (Execution(CPU, "cpu", (9 * 10**15 - 1) * 1000, (10**13 - 1) * 1000),)),
    }
    # nanoseconds since 1970 are numbers of 63 bits until the year 2262
    assert max(step.end_ns for node in profile.nodes for step in node.steps) < 1 << 63
    assert kinds(notes) == {
        "record without a start: skipped, as in tfprof": 1,
        "execution without a possible time: skipped": 1,
        "op on a second device left out, as in tfprof": 1,
        "record of an unknown sort of device: skipped": 1,
    }


def test_the_text_form_may_be_laid_out_in_any_way() -> None:
    """One line, braces or angle brackets, comments, escapes, colons before messages."""
    text = (
        b"# made by hand\ndev_stats: < device: \"/job:a/device:CPU:0\" node_stats { node_name: 'a\\x62\\143' "
        b'all_start_micros:%d, op_end_rel_micros: 3; timeline_label: "abc = NoOp()" } >' % START_US
    )
    assert step_stats.TEXT.sniff(text)
    profile, notes = read(step_stats.TEXT, text)
    assert [node.name for node in profile.nodes] == ["abc"]
    assert list(notes) == []


LEGEND = "node name | # parameters | requested bytes | total execution time | op types\n"
FOUR = {"bytes": Printed(150, "KB"), "micros": Printed(9500, "us"), "accelerator_micros": Printed(200, "ms")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # pasted rows are enough, also quoted ones; with four fields they have the notebook's columns
        ("'  v/tower_0/cg/Relu (0B/1.50KB, 95us/95us, 0us/2.00ms, 95us/1.25sec)',\nother text (see 5us)\n",
         {"v/tower_0/cg/Relu": FOUR | {"cpu_micros": Printed(125, "sec")}}),
        # columns are taken by the legend: shapes of variables stand before their parameters, what is no number behind
        (LEGEND + "_TFProfRoot (--/1 params, --/2B, --/3us, _kTFScopeParent)\n"
         "  w (3x3, 9/9 params, 36B/36B, 3us/4us, VariableV2|_trainable_variables)\n"
         "  s (--/9 params, --/36B, --/4us, _kTFScopeParent)\n",
         {key: {"bytes": Printed(3600, "B"), "micros": Printed(400, "us")} for key in "ws"}),
    ],
)  # fmt: skip
def test_rows_of_a_printed_view(text: str, expected: dict[str, dict[str, Printed]]) -> None:
    view, _ = read(views, text.encode())
    assert {row.name: dict(row.total) for row in view.rows} == expected


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("tower_0/v/cg/resnet_v20/conv1/conv2d/Conv2D", ("resnet_v20/conv1", "Conv2D")),
        ("v/tower_1/cg/conv0/conv2d/Conv2D", ("tower_1/conv0", "Conv2D")),
        ("tower_3/v/gradients/tower_3/v/cg/conv0/batchnorm0/FusedBatchNormV3_grad/FusedBatchNormGradV3",
         ("tower_3/conv0", "FusedBatchNormGradV3")),
        ("v/task_0_tower_1/cg/mpool0/MaxPool", ("task_0_tower_1/mpool0", "MaxPool")),
        ("tower_0/v/xentropy/sparse_softmax_cross_entropy_loss", ("sparse_softmax_cross_entropy_loss", "")),
        ("v/tower_0/gradients/v/tower_0/cg/mpool0/MaxPool_grad/MaxPoolGrad", ("mpool0/MaxPool_grad", "MaxPoolGrad")),
        ("v/tower_0/cg/Relu", ("Relu", "")),
        ("v/tower_0/cg/Relu_1", ("Relu_1", "Relu")),
    ],
)  # fmt: skip
def test_short_names_of_the_default_rows(name: str, short: tuple[str, str]) -> None:
    """The notebook's own cleaning and choice, for all namings; newer files and op versions match as its did."""
    assert tfprof.short_name(name) == short
    profile = TfProfile(source=0, steps=(0,), nodes=(node(name, (0, 5, CPU)), node("other/Conv2D", (0, 5, CPU))))
    assert [one.name for one in tfprof.profile_series(profile, (0,), (), "exact")] == [name]


def test_a_second_is_a_million_microseconds() -> None:
    """The notebook made it nothing."""
    assert tfprof.in_notebook_units(Printed(150, "sec")) == 1.5e6
    assert tfprof.in_exact_units(Printed(150, "sec")) == 1.5e6
    assert tfprof.in_exact_units(Printed(12345, "MB")) == 123450.0
    assert tfprof.in_notebook_units(Printed(200, "MB")) == 2048.0


def test_a_step_in_which_a_node_did_not_run_counts_as_nothing_and_is_told() -> None:
    """So do rows that stand in other shown rows."""
    nodes = (node("a", (0, 6, CPU), step=1), node("a/b", (0, 5, CPU), (7, 1, CPU), step=3))
    profile = TfProfile(source=0, steps=(1, 3), nodes=nodes)
    series = tfprof.profile_series(profile, (1, 3), (".*",), "exact")
    assert [(one.name, one.values["cpu_micros"], one.ran) for one in series] == [
        ("a", [6.0, 6.0], 1),
        ("a/b", [0.0, 6.0], 1),
    ]
    assert list(tfprof.doubts(series)) == [
        ("row that did not run in every step: it counts as 0 there", "a: 1 of 2"),
        ("row that did not run in every step: it counts as 0 there", "a/b: 1 of 2"),
        ("row inside another shown row: a sum over all rows counts it twice", "a/b"),
    ]


@pytest.mark.parametrize(("order", "names"), [("name", "r r_10 r_2 z"), ("micros", "z r r_10 r_2")])
def test_ties_keep_the_order_of_names_and_names_that_of_their_bytes(order: str, names: str) -> None:
    nodes = tuple(node(name, (0, dur, CPU)) for name, dur in (("r_10", 5), ("r_2", 5), ("r", 5), ("z", 9)))
    root = scope.ScopeTree(TfProfile(source=0, steps=(0,), nodes=nodes)).rows(
        msgspec.structs.replace(ALL, order_by=order)
    )
    assert [row.name for row in scope.flat(root)] == names.split()


# -- ``mio2trace tfprof``: every form of input, rows, options, what is refused.


CONV = "v/tower_0/cg/conv0/conv2d/Conv2D"
RELU = "v/tower_0/cg/Relu_1"


def profile() -> bytes:
    """A convolution in two steps, a Relu in one, something else."""
    conv = node(CONV, (0, 1500, CPU), step=0, memory=2500)
    later = node(CONV, (9000, 500, CPU), step=2, memory=2500)
    nodes = (
        node(RELU, (20, 6, CPU), step=0, op="Relu"),
        TfNode(name=CONV, op="Conv2D", op_types=("Conv2D",), device=CPU, steps=(*conv.steps, *later.steps)),
        node("save/Const", (30, 1, CPU), step=0),
    )
    return profile_proto(TfProfile(source=0, steps=(0, 2), nodes=nodes))


run = functools.partial(invoked, "tfprof")


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(saved(tmp_path / "profile.tfprof", profile()))


ROWS = "Relu_1,Relu,0.0,0.0,3.0,100.0,0.0,0.0,3.0,100.0\nconv0,Conv2D,2.5,0.0,1000.0,50.0,0.0,0.0,1000.0,50.0\n"


def test_the_notebooks_table(file: str) -> None:
    """One header, the shown rows in the order of their names, means and variation over the steps."""
    done = run(file)
    assert done.exit_code == 0
    assert done.stdout == ",".join(COLUMNS) + "\n" + ROWS
    assert run(file, "--no-header").stdout == ROWS
    assert "3 nodes, 3 of them ran; 2 of 2 steps taken; 2 rows" in done.stderr
    assert "did not run in every step: it counts as 0 there (v/tower_0/cg/Relu_1: 1 of 2)" in done.stderr


def test_steps_are_chosen(file: str) -> None:
    """By number and range; what is not there is an error of use."""
    conv = run(file, "--steps", "2", "--no-header").stdout.splitlines()[1]
    assert conv.split(",")[2:6] == ["2.5", "0.0", "500.0", "0.0"]
    assert run(file, "--steps", "0-2").stdout == run(file).stdout
    for bad in ("1", "0-1", "3-5", "x", "2-1", "avg", ""):
        assert run(file, "--steps", bad).exit_code == 2, bad
    assert "no step 1; there are 0, 2" in run(file, "--steps", "1").stderr


def test_rows_are_chosen_by_whole_names(file: str) -> None:
    """Several expressions; none that matches is said."""
    names = [row["name"] for row in csv.DictReader(io.StringIO(run(file, "--show", ".*Const", "--show", RELU).stdout))]
    assert names == ["save", "Relu_1"]
    done = run(file, "--show", "Relu_1")
    assert done.stdout.count("\n") == 1
    assert "no row is shown" in done.stderr


def test_the_scope_view(file: str) -> None:
    """Average and single steps, with options of the profiler."""
    lines = run(file, "--text", "--show", ".*", "--select", "micros,occurrence", "--steps", "0").stdout.splitlines()
    assert lines[-9:] == [
        "  save (0us/1us, 0us/0us, 0us/1us, 0/1|1/2)",
        "    save/Const (1us/1us, 0us/0us, 1us/1us, 1/1|1/1)",
        "  v (0us/1.51ms, 0us/0us, 0us/1.51ms, 0/2|1/7)",
        "    v/tower_0 (0us/1.51ms, 0us/0us, 0us/1.51ms, 0/2|1/6)",
        "      v/tower_0/cg (0us/1.51ms, 0us/0us, 0us/1.51ms, 0/2|1/5)",
        "        v/tower_0/cg/Relu_1 (6us/6us, 0us/0us, 6us/6us, 1/1|1/1)",
        "        v/tower_0/cg/conv0 (0us/1.50ms, 0us/0us, 0us/1.50ms, 0/1|1/3)",
        "          v/tower_0/cg/conv0/conv2d (0us/1.50ms, 0us/0us, 0us/1.50ms, 0/1|1/2)",
        f"            {CONV} (1.50ms/1.50ms, 0us/0us, 1.50ms/1.50ms, 1/1|1/1)",
    ]
    average = run(file, "--text", "--min", "micros=100", "--order-by", "micros").stdout.splitlines()
    assert average[-1] == f"  {CONV} (2.50KB/2.50KB, 1.00ms/1.00ms, 0us/0us, 1.00ms/1.00ms)"
    assert run(file, "--text", "--steps", "0,2").stdout.count("_TFProfRoot (") == 2
    console = run(file, "--text", "--steps", "0,2", "--console").stdout
    assert [line.split()[1] for line in console.splitlines() if line.startswith("-step")] == ["0", "2"]


def test_a_printed_view_gives_the_table_again(file: str, tmp_path: Path) -> None:
    """Several views are steps; the files' names or their options tell which. An average has no variation."""
    done = run("-", stdin=run(file, "--text", "--steps", "0,2", "--console").stdout.encode())
    assert done.stdout.split("\n", 1)[1] == ROWS
    assert "scope view of 2 steps; 2 rows" in done.stderr
    paths = [str(tmp_path / f"step_{step}.txt") for step in (2, 0)]
    for path in paths:
        Path(path).write_text(run(file, "--text", "--steps", path[-5]).stdout)
    assert run(*paths, "--no-header").stdout == ROWS
    assert run(*paths, "--steps", "2", "--no-header").stdout.splitlines()[1].split(",")[4] == "500.0"
    average = run("-", "--no-header", stdin=run(file, "--text", "--console").stdout.encode()).stdout
    assert average.splitlines()[1].split(",")[4:6] == ["1000.0", ""]


def test_one_step_of_a_timeline_has_no_memory(tmp_path: Path) -> None:
    """Values that a form does not have stay empty, with a note, also if the file is cut off."""
    op = {"name": "Conv2D", "ph": "X", "cat": "Op", "tid": 0, "ts": START_US, "dur": 7}
    events = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"{CPU.replace('cpu', 'CPU')} Compute"}},
        op | {"pid": 1, "args": {"name": CONV, "op": "Conv2D"}},
        op | {"pid": 9, "args": {"name": CONV}},
    ]
    text = json.dumps({"traceEvents": events}, indent=4)
    for part, said in (
        (text, ["has no memory", "names no node or no device: skipped"]),
        (text[: text.rindex("Conv2D")], ["file cut off: read up to there"]),
    ):
        done = run(str(saved(tmp_path / "trace", part)))
        assert done.stdout.splitlines()[1:] == ["conv0,Conv2D,,,7.0,0.0,0.0,0.0,7.0,0.0"]
        assert all(words in done.stderr for words in said)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--select", "micros"], "--select needs --text"),
        (["--min", "micros=3"], "--min needs --text"),
        (["--text", "--format", "csv"], "--text cannot be combined with --format"),
        (["--text", "--notebook-units"], "--text cannot be combined with --notebook-units"),
        (["--format", "json", "--no-header"], "--no-header cannot be combined with --format json"),
        (["--show", "("], "no regular expression"),
        (["--text", "--min", "micros"], "expected COLUMN=N"),
        (["--text", "--min", "size=3"], "expected COLUMN=N"),
        (["--text", "--order-by", "size"], "expected one of name"),
        (["--text", "--select", "size"], "no column 'size'"),
    ],
)
def test_options_that_are_none(file: str, args: list[str], said: str) -> None:
    """Exit 2 and what was expected."""
    done = run(file, *args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty; expected a TFProf profile"),
        (b"hello\n", "no row of a TFProf view"),
        (b"\x00\x01\x02\x03" * 9, "binary data that begins 00 01 02 03"),
        (b'{"a": 1}', "JSON with the keys a; expected a TFProf profile"),
        (b'[{"call": "clBuildProgram", "timestamp": {}}]', "is a dv/dt profile"),
        (b"\x0a\x08\x08\x01\x12\x05\x0a\x01nbb", "expected"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(tmp_path: Path, data: bytes, said: str, file: str) -> None:
    """Exit 1; the line names the file. One profile has all steps: several are refused."""
    path = saved(tmp_path / "file", data)
    done = run(str(path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("mio2trace: file: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    path.write_bytes(profile())
    assert "several profiles; expected one" in stderr_of(run(file, str(path)), 1)


# -- TensorFlow's files cut, scribbled over and made up of anything: records and notes, or one line, nothing else.


RECORDS = {
    CPU: [("a/x", START_US, 3, "a/x = Conv2D(b)"), ("b:c", START_US + 9, 0, "b = NoOp()")],
    f"{KERNELS}": [("a/x:Conv2D", START_US + 2, 7, "void k()@@a/x:Conv2D#")],
}
TEXT = b"".join(
    b'dev_stats {\n  device: "%s"\n%s}\n'
    % (
        device.encode(),
        b"".join(
            b'  node_stats {\n    node_name: "%s"\n    all_start_micros: %d\n    op_end_rel_micros: %d\n    output {\n'
            b'      tensor_description { shape { dim { size: 3 } } }\n    }\n    timeline_label: "%s"\n  }\n'
            % (name.encode(), start, end, label.encode())
            for name, start, end, label in records
        ),
    )
    for device, records in RECORDS.items()
)
JSON = json.dumps(
    {
        "traceEvents": [
            {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"{CPU} Compute"}},
            *(
                {"name": "Conv2D", "ph": "X", "cat": "Op", "pid": 1, "tid": 0, "ts": START_US + at, "dur": at % 3,
                 "args": {"name": f"a/x{at}", "op": "Conv2D"}}
                for at in range(5)
            ),
        ]
    },
    indent=4,
).encode()  # fmt: skip
VIEW = (
    b"\nDoc:\nscope: x\n\nProfile:\nnode name | requested bytes | total execution time\n"
    b"_TFProfRoot (--/1.50KB, --/3us)\n  a (1.50KB/1.50KB, 3us/3us)\n    a/x (--/0B, --/0us)\n"
)
FILES: dict[str, tuple[Reader, bytes]] = {
    "profile": (profile_reader, profile_proto(random_profile(random.Random(5)))),
    "metadata": (step_stats.BYTES, run_metadata(RECORDS)),
    "text": (step_stats.TEXT, TEXT),
    "json": (step_stats.TIMELINE, JSON),
    "view": (views, VIEW),
}


def read_or_refused(reader: Reader, data: bytes) -> tuple[Sequence[object], Notes] | None:
    """Read the bytes and use the records. Return None if the reader refuses them, in one line."""
    notes = Notes()
    refusal = ""
    with contextlib.closing(Source("-", 0, notes, stdin=io.BytesIO(data))) as source:
        try:
            records = list(reader.read(source, ReadOptions(), notes))
        except InputError as error:
            refusal = str(error)
            records = []
    if not records:
        assert "\n" not in refusal
        assert refusal.startswith("standard input: ")
        return None
    for record in records:
        if isinstance(record, TfProfile):
            series = tfprof.profile_series(record, record.steps, (".*",), "notebook")
            tfprof.table(tfprof.profile_series(record, record.steps, (".*",), "exact"))
            assert len(series) >= len({one.name for one in record.nodes}) or not record.steps
            options = tfprof.ScopeOptions(select=tfprof.SELECTABLE, show_name_regexes=(".*",))
            text = "".join(tfprof.text(tfprof.ScopeTree(record).rows(options), options))
            assert text.count("_TFProfRoot (") >= 1
        else:
            assert isinstance(record, TfView)
            tfprof.table(tfprof.view_series([record], (".*",), "exact"))
    return records, notes


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_cut_is_read_as_far_as_it_goes_or_refused(name: str) -> None:
    """At each byte; what is left out is said: a note, or the refusal."""
    reader, data = FILES[name]
    whole = present(read_or_refused(reader, data))
    assert list(whole[1]) == []
    cuts = range(0, len(data.rstrip()), max(1, len(data) // 300))
    found = {at: read_or_refused(reader, data[:at]) for at in cuts}
    assert {one is None for one in found.values()} == {True, False}
    for at, one in found.items():
        # A printed view has no end of its own, nor have the devices of a text between two of them.
        ends = name == "view" or (name == "text" and data[:at].count(b"{") == data[:at].count(b"}"))
        if one is not None and one[0] != whole[0] and not ends:
            assert list(one[1]), at


LONG = (node("long", (0, 10**9, GPU)), *(node(f"s/{at}", (at, 1, GPU)) for at in range(5000)))
BOMBS: dict[str, Callable[[], bytes]] = {
    "nested braces": lambda: b"dev_stats {" * 200_000,
    "nested names": lambda: sized(1, number(1, 1) + sized(2, sized(1, "/".join("a" * 100_000)))),
    "tiny nodes": lambda: sized(1, number(1, 1)) * 100_000,
    "one long op and many short": lambda: profile_proto(TfProfile(source=0, steps=(0,), nodes=LONG)),
    "quotes": lambda: b'dev_stats { device: "' + b"\\" * 1_000_000,
    "brackets": lambda: b'{"traceEvents": [' + b"[" * 1_000_000,
    "row": lambda: b"_TFProfRoot (--/1B)\n  a (" + b"1us/1us, " * 100_000,
    "row without an end": lambda: b"a (" * 200_000 + b"1us",
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_made_to_take_long_does_not(name: str) -> None:
    """Deep nesting, long lines, many parts: seconds at most, no recursion to its limit."""
    data = BOMBS[name]()
    start = time.process_time()
    for reader, _ in FILES.values():
        read_or_refused(reader, data)
    assert time.process_time() - start < 30
