"""The law of tests/fuzz/law.py: a CI-size run of `benchmarks/fuzz.py`, the corpus, and that the law can be broken."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import fuzz
from mio2trace.align import align
from mio2trace.conversion import HostCalls
from mio2trace.model.profile import Profile
from mio2trace.notes import InputError
from tests.fuzz import cases, covered, damage, law, looks, mutations, own, structures
from tests.small_runs import as_json, benchmark

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
CALLS, LOG = benchmark()
KINDS = {generator(random.Random(0)).kind for generator in cases.GENERATORS}


def judged(files: list[bytes], enqueues: int, host_calls: HostCalls = "enqueue") -> str:
    """`law.judge`, with what is known to be open as a verdict of its own."""
    try:
        return law.judge(files, enqueues, host_calls)
    except law.ViolationError as error:
        if law.is_open(law.signature(error)):
            return "open"
        raise


@given(st.randoms(use_true_random=False))
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
def test_well_formed_files_keep_every_kernel(chance: random.Random) -> None:
    """What the formats allow is converted: every kernel and copy is drawn, counted, or lost with a note."""
    made = chance.choice(cases.GENERATORS)(chance)
    judged(made.files, made.enqueues, chance.choice(law.HOST_CALLS))


@given(st.randoms(use_true_random=False))
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
def test_damaged_files_give_a_trace_or_one_line(chance: random.Random) -> None:
    files = damage.damaged(chance.choice(cases.GENERATORS)(chance).files, chance)
    judged(damage.dressed(files, chance), 0, chance.choice(law.HOST_CALLS))


@pytest.mark.parametrize("seed", fuzz.seeds())
def test_100_cases_of_every_seed(seed: int) -> None:
    """The first of those that `benchmarks/fuzz.py` runs, with the real files that lie in the repository."""
    found = fuzz.work(seed, 0, 100, fuzz.real_files(None))
    assert sum(found.verdicts.values()) == 100
    assert [f"{number} x {one.place}: {one.text}" for number, one in fuzz.by_fault(found.violations)] == []


@pytest.mark.shared
def test_pieces_of_the_real_samples(shared: Path) -> None:
    real = damage.real_files(shared, ROOT)
    assert len(real) > 50
    chance = random.Random("pieces")
    verdicts = []
    for _ in range(150):
        files = damage.damaged([damage.piece(chance.choice(real), chance)], chance)
        verdicts.append(judged(files, law.intact(files)))
    assert set(verdicts) - {"open"} == {"trace", "refused"}


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_what_once_broke_the_law_keeps_it(path: Path) -> None:
    """Each folder of the corpus holds the files of one case, and options; corpus/README.md says what was wrong."""
    if path.name == "README.md":
        listed = path.read_text()
        assert all(f"`{folder.name}`" in listed for folder in CORPUS.iterdir() if folder.is_dir())
        return
    files = [file.read_bytes() for file in sorted(path.iterdir()) if file.name != "options.json"]
    chosen = path / "options.json"
    options = msgspec.json.decode(chosen.read_bytes(), type=dict[str, Any]) if chosen.exists() else {}
    for host_calls in law.HOST_CALLS:
        law.judge(files, 0, host_calls, **options)
    looks.judge_order(files, "enqueue")
    for data in files:
        law.judge_operations(data)
    chance = random.Random(path.name)
    for _ in range(12):
        looks.judge_command(files, looks.command(chance))


@pytest.mark.parametrize("name", looks.COMMANDS)
def test_the_other_commands_keep_the_law(name: str) -> None:
    """On what they are for, well formed and mutated, whatever their options; and that is what is tried."""
    chance = random.Random(f"command {name}")
    codes = set()
    for _ in range(60):
        made = chance.choice(cases.GENERATORS)(chance)
        files = made.files if chance.random() < 0.5 else [mutations.mutated(data, chance) for data in made.files]
        words = next(words for words in iter(lambda: looks.command(chance), None) if words[0] == name)
        codes.add(looks.judge_command(files, words))
    assert {0, 1} <= codes


def test_the_same_seed_gives_the_same_cases() -> None:
    real = fuzz.real_files(None)
    once, again = (list(cases.cases(5, 40, real)) for _ in range(2))
    assert once == again
    assert once != list(cases.cases(6, 40, real))
    kinds = {one.kind for one in cases.cases(1, 1000, real)}
    assert {kind for kind in kinds if not kind.startswith("long")} == {*KINDS, "crossed", "real"}
    assert any(kind.startswith("long") for kind in kinds)


def test_most_generated_files_are_traces() -> None:
    chance = random.Random("quality")
    for generator in cases.GENERATORS:
        made = [generator(chance) for _ in range(24)]
        verdicts = [judged(one.files, one.enqueues) for one in made]
        if made[0].kind not in ("MIOpen log", "TensorFlow", "log with records of libraries"):  # without times
            assert verdicts.count("trace") >= 10, made[0].kind


# ---- the law can be broken


def _with_a_kernel_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(profile: Profile, *args: Any, **options: Any) -> Any:
        return align(msgspec.structs.replace(profile, activities=profile.activities[:-1]), *args, **options)

    monkeypatch.setattr("mio2trace.analysis.align", lossy)


def _with(error: BaseException) -> Any:
    def broken(*_: object, **__: object) -> None:
        raise error

    return lambda patch: patch.setattr(law, "convert", broken)


def _that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> None:
        while True:
            pass

    monkeypatch.setattr(law, "SECONDS", 0.2)
    monkeypatch.setattr(law, "convert", hang)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (_with_a_kernel_lost, r"kernels and copies in the input, \d+ kept, 0 noted"),
        (_with(ValueError("x")), "ValueError: x"),
        (_with(MemoryError()), "MemoryError"),
        (_with(InputError("")), "not one clear line"),
        (_with(InputError("x" * 5000)), "not one clear line"),
        (_that_hangs, "more processor time"),
    ],
    ids=["lost kernel", "exception", "memory", "no line", "long line", "hang"],
)
def test_a_fault_that_is_planted_is_found(monkeypatch: pytest.MonkeyPatch, plant: Any, said: str) -> None:
    files = [LOG.encode(), as_json(CALLS)]
    assert law.judge(files, structures.enqueues(CALLS)) == "trace"
    plant(monkeypatch)
    with pytest.raises(law.ViolationError, match=said):
        law.judge(files, structures.enqueues(CALLS))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"name":"k', b'"name":"\\u0000k', "an escape"),
        (b'"name":"im2col"', b'"name":""', "without a name"),
        (b'"dur":', b'"dur":-', "below zero"),
        (b'"line":1', b'"line":null', "null"),
        (b'"line":1', b'"line":NaN', "no JSON"),
        (b"]}", b"]", "no JSON"),
    ],
)
def test_a_bad_trace_is_found(old: bytes, new: bytes, said: str) -> None:
    event = b'{"ph":"X","pid":1,"tid":2,"ts":0.000,"dur":1.000,"name":"im2col","cat":"kernel","args":{"line":1}}'
    good = b'{"traceEvents":[\n' + event + b',\n{"name":"k","ph":"M"}]}'
    law.check_trace(good)
    assert good.count(old) == 1
    with pytest.raises(law.ViolationError, match=said):
        law.check_trace(good.replace(old, new))


# -- A CI-size run of `benchmarks/fuzz_own.py`, and that every reader of the package is fed by a fuzzer.


CASES = {"trace": 100, "hostile trace": 70, "base": 70, "sums": 50, "databases": 12}


@pytest.mark.parametrize("kind", own.KINDS)
def test_own_formats_keep_the_law(kind: str) -> None:
    verdicts = Counter(own.judged(7, number, (kind,))[1] for number in range(CASES.get(kind, 25)))
    assert sum(verdicts.values()) == CASES.get(kind, 25)
    assert len(verdicts) > 1 or kind in ("trace", "journal", "folder")


def test_every_reader_is_fed() -> None:
    """The table is the package's: a reader without an entry fails, and an entry without a reader."""
    assert sorted(covered.reading()) == sorted(covered.READERS)
    kinds = {*own.KINDS, *(generator(random.Random(0)).kind for generator in cases.GENERATORS)}
    for reader, fed in covered.READERS.items():
        assert bool(fed.by) != bool(fed.no_file), reader
        assert set(fed.by) <= kinds, reader
    assert set(own.KINDS) <= {kind for fed in covered.READERS.values() for kind in fed.by}


def test_a_lost_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The independent sum is another than that of a program that loses time."""
    monkeypatch.setattr(own, "_rocpd_sum", lambda data: 1)
    monkeypatch.setattr(own, "_dvdt", own._rocpd)
    monkeypatch.setattr(own, "_kineto", own._rocpd)
    chances = [random.Random(f"lost {number}") for number in range(60)]
    with pytest.raises(law.ViolationError, match="and no problem noted"):
        list(map(own.sums, chances))
