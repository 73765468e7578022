"""Shared by all tests: the real samples beside the repository, and Perfetto's own engine and UI.

A test that needs one of these, a package index or a file system of its own skips, with the reason, where it cannot be
had. The environment's ``MIO2TRACE_REQUIRE=shared,browser,engine,network,faults,opencl`` makes that a failure:
continuous integration sets it, so nothing is skipped there unseen. With ``thorough`` in it
the tests run that take long.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest

from mio2trace import analysis, machine
from mio2trace.batch import confined
from tests.perfetto_tools.perfetto_ui import PerfettoUI, find_chromium
from tests.perfetto_tools.tp_query import TraceProcessor, TraceProcessorError, find_node, find_web_dist

ROOT = Path(__file__).resolve().parent.parent
REQUIRED = frozenset(os.environ.get("MIO2TRACE_REQUIRE", "").replace(",", " ").split())

Engine = Callable[[Path], TraceProcessor]
UI = Callable[[Path], PerfettoUI]
Golden = Callable[[Path, bytes], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")
    parser.addoption("--cpu-times", metavar="FILE", help="add a line for each module of tests: its CPU seconds")


def _shared() -> Path:
    return Path(os.environ.get("MIO2TRACE_SHARED") or ROOT.parent / "shared")


_tests_that_run: list[str] = []
"""Of this process: the environment's ``PYTEST_CURRENT_TEST`` may be of one that started it."""


def shared_folder() -> Path:
    """Where the real samples are. The only way to them: a test that asks for them skips if they are not there.

    While tests are collected, to be parametrised, the folder need not be there: a module that skips is an error.
    """
    if _tests_that_run:
        _require_samples()
    return _shared()


def _require_samples() -> None:
    if not (_shared() / "samples").is_dir():
        missing("shared", f"no real samples in {_shared()} (MIO2TRACE_SHARED names another folder)")


def missing(what: str, reason: str) -> NoReturn:
    """Skip, or fail where ``what`` is required."""
    if what in REQUIRED:
        pytest.fail(f"{what} is required: {reason}", pytrace=False)
    pytest.skip(reason)


def pytest_configure() -> None:
    gc.set_threshold(100_000)  # tests make little that needs it; the program itself does the same
    # A shell starts what it runs in the background deaf to interrupts; children would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # the same of nohup; a handler is no child's
        signal.signal(signal.SIGHUP, lambda number, frame: None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that was parametrised with a real sample skips, too, where the samples are not."""
    try:
        yield
    except Exception as error:
        if f"{_shared()}/samples" not in str(error):
            raise
        _require_samples()
        raise


def pytest_collection(session: pytest.Session) -> None:
    """Let each worker begin to collect with other modules, so that no module is compiled twice."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or [Path(arg).resolve() for arg in session.config.args] != [ROOT / "tests"]:
        return
    names = sorted(path.stem for path in (ROOT / "tests").glob("test_*.py"))
    first = len(names) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for name in names[first:]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # it is collected afterwards
            importlib.import_module(f"tests.{name}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run all tests of a module in one process: what they share (a site, a dataset, a browser) is made once.

    Another ``--dist`` than that of ``-n`` alone stays.
    """
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped, unused-ignore]

    return LoadFileScheduling(config, log)


_CPU_S = pytest.StashKey[dict[str, float]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count the processor time of each module, its children's included; know that a test runs."""
    before = os.times()
    _tests_that_run.append(item.nodeid)
    try:
        return (yield)
    finally:
        _tests_that_run.pop()
        spent = item.config.stash.setdefault(_CPU_S, {})
        name = item.path.name
        spent[name] = spent.get(name, 0.0) + sum(os.times()[:4]) - sum(before[:4])


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--cpu-times")
    if path:
        with open(path, "a") as file:
            for name, seconds in session.config.stash.get(_CPU_S, {}).items():
                file.write(f"{seconds:.1f} {name}\n")


LONGEST = ("test_wheel.py", "test_patterns.py", "test_perfetto.py")
"""Where a test takes a minute: begun last they would leave all processors but one without work."""


FAST = frozenset((ROOT / "tests" / "fast_modules.txt").read_text("utf-8").split())
"""Modules whose tests together take less than a minute of a processor without the real samples. They are the cheapest
by `for file in tests/test_*.py; do pytest --cpu-times times.txt $file; done`."""


THOROUGH = frozenset((ROOT / "tests" / "thorough_modules.txt").read_text("utf-8").split())
"""Modules that hold one law over very many inputs, or build and install the program in several ways: half of the
processor time of all tests. Continuous integration runs them; a person rarely breaks them alone."""


def _runs_here(item: pytest.Item) -> bool:
    samples = "shared" in REQUIRED or (_shared() / "samples").is_dir()
    return (samples or item.get_closest_marker("shared") is None) and (
        "thorough" in REQUIRED or item.get_closest_marker("thorough") is None
    )


def _with_one_skip_for_all_cases(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Keep one case of each test that is skipped here: to skip a thousand cases takes as long as many tests."""
    skipped: set[tuple[Path, str]] = set()
    for item in items:
        test = item.path, getattr(item, "originalname", item.name)
        if _runs_here(item) or test not in skipped:
            yield item
        if not _runs_here(item):
            skipped.add(test)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in FAST:
            item.add_marker("fast")
        if item.path.name in THOROUGH:
            item.add_marker("thorough")
    items[:] = _with_one_skip_for_all_cases(items)
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is not wanted or not to be had here, before its fixtures are made."""
    if item.get_closest_marker("shared") is not None:
        _require_samples()
    if item.get_closest_marker("thorough") is not None and "thorough" not in REQUIRED:
        pytest.skip("takes long: MIO2TRACE_REQUIRE=thorough runs it, as continuous integration does")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real samples."""
    return shared_folder()


@pytest.fixture(scope="session")
def pandas() -> Any:
    """The module, which recomputes statistics."""
    try:
        import pandas
    except ImportError as error:
        missing("pandas", f"no pandas: {error}")
    return pandas


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare bytes with a golden file, or write it under ``--update-golden``."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(path: Path, data: bytes) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            return
        expected = path.read_bytes()
        if data != expected:
            at = next((i for i, (a, b) in enumerate(zip(data, expected, strict=False)) if a != b), len(expected))
            around = slice(max(0, at - 100), at + 100)
            pytest.fail(f"{path}: differs at byte {at}: got {data[around]!r}, expected {expected[around]!r}")

    return compare


@pytest.fixture(scope="session")
def idle_engines() -> Iterator[list[TraceProcessor]]:
    """Perfetto's engines that are started and that no test uses now."""
    idle: list[TraceProcessor] = []
    yield idle
    for processor in idle:
        processor.close()


@pytest.fixture
def engine(idle_engines: list[TraceProcessor]) -> Iterator[Engine]:
    """Load a trace into Perfetto's own trace processor; `query`, `errors` and `failed_checks` ask it."""
    with engines_of(idle_engines) as load:
        yield load


@contextlib.contextmanager
def engines_of(idle: list[TraceProcessor]) -> Iterator[Engine]:
    """Engines that are idle, or new ones, which are idle afterwards: the start of one takes two seconds."""
    try:
        find_web_dist()
        find_node()
    except TraceProcessorError as error:
        missing("engine", str(error))
    opened: list[TraceProcessor] = []

    def load(trace: Path) -> TraceProcessor:
        if idle:
            opened.append(idle.pop())
            opened[-1].reload(trace)
        else:
            opened.append(TraceProcessor(trace))
        return opened[-1]

    yield load
    for processor in opened:
        if processor.has_ended() or len(idle) > 1:
            processor.close()
        else:
            idle.append(processor)


@pytest.fixture(scope="session")
def warm_process() -> Iterator[None]:
    yield
    confined.close_that_of_this_thread()


@pytest.fixture
def warm(warm_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch in this process keeps its warm process for the next one: its start takes longer than a small run."""
    monkeypatch.setattr("mio2trace.batch.work.close_that_of_this_thread", lambda: None)


@pytest.fixture(scope="session")
def browser() -> Iterator[PerfettoUI]:
    """One browser for the session: its start takes longer than a trace's load."""
    try:
        find_web_dist("index.html")
    except TraceProcessorError as error:
        missing("browser", str(error))
    if importlib.util.find_spec("playwright") is None:
        missing("browser", "no browser driver: pip install playwright")
    if find_chromium() is None:
        missing("browser", "no browser: install chromium, or set CHROMIUM")
    with PerfettoUI() as opened:
        yield opened


@pytest.fixture
def ui(browser: PerfettoUI) -> UI:
    """Open a trace in the real UI; raises on any error that it shows."""

    def load(trace: Path) -> PerfettoUI:
        browser.open(trace)
        return browser

    return load


# A law that a search finds broken must be found broken again: the examples are the same in every run. A thorough run
# tries more of them, and --hypothesis-profile=search many more.
hypothesis.settings.register_profile(
    "same", derandomize=True, deadline=None, max_examples=100 if "thorough" in REQUIRED else 25
)
hypothesis.settings.register_profile("search", max_examples=2000, deadline=None)
hypothesis.settings.load_profile("same")


@pytest.fixture(scope="session", autouse=True)
def faults_are_seen() -> Iterator[Callable[[Exception], str]]:
    """A fault of the program while it joins a log is a failure in tests; a person gets the profile without the log.
    What is there for a person."""

    def fail(error: Exception) -> str:
        raise error

    usual = analysis._place
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(analysis, "_place", fail)
        patched.setattr(machine, "_MUCH", 1 << 40)  # to give memory back after each run takes longer than small runs
        yield usual


_analysed = functools.lru_cache(maxsize=8)(analysis.analyse)


@pytest.fixture
def analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that read the same files with the same options analyse them once, also in several tests."""
    monkeypatch.setattr(analysis, "analyse", lambda files, options, notes=None: _analysed(tuple(files), options))
