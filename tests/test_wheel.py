"""What people install: the wheel, in an environment of its own, with the newest and the oldest libraries allowed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from mio2trace import __version__
from tests.conftest import missing

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
RUN = ROOT / "traces" / "alexnet-b1-train"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PIN = re.compile(
    r"^([a-z0-9][a-z0-9._-]*)==(\S+)(?: ; [^\n\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)

Environment = Callable[[str], Path]


def pip(python: Path, *args: str) -> None:
    """Ours, for the environment of ``python``: to give each its own takes longest. Skip where the packages cannot be
    had."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input", *args]
    result = subprocess.run(command, capture_output=True, text=True, timeout=500)
    if result.returncode:
        missing("network", f"pip {args[0]}: {result.stderr.strip().splitlines()[-1][:200]}")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as pip builds it, from a copy of what is in the source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    pip(Path(sys.executable), "wheel", "--no-deps", "-q", "-w", str(folder), str(ROOT))
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A fresh environment with the wheel and what ``requirements/<name>.txt`` pins; its Python."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            venv.create(folder)
            python = folder / "bin" / "python"
            pip(python, "install", "-q", "--require-hashes", "--no-deps", "-r", str(REQUIREMENTS / f"{name}.txt"))
            pip(python, "install", "-q", "--no-deps", str(wheel))
            made[name] = python
        return made[name]

    return make


def clean(**more: str) -> dict[str, str]:
    """Nothing that leads back to the source tree."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")} | more


def ran(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None, timeout: int = 500
) -> subprocess.CompletedProcess[str]:
    env = clean() if environment is None else environment
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout)


@pytest.mark.network
def test_the_wheel_holds_the_program_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"mio2trace-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry_points = archive.read(f"mio2trace-{__version__}.dist-info/entry_points.txt").decode()
    assert {name.split("/")[0] for name in names} == {"mio2trace", f"mio2trace-{__version__}.dist-info"}
    source = ROOT / "timeline"
    other = {name for name in names if not name.endswith(".py") and name.startswith("mio2trace/")}
    assert {Path(name).suffix for name in other} <= {".typed", ".css", ".j2", ".sql"}, "the program, no samples"
    in_tree = {str(path.relative_to(source)) for path in source.rglob("*.py")} | {"mio2trace/py.typed"}
    assert in_tree <= set(names)
    assert f"mio2trace-{__version__}.dist-info/licenses/LICENSE" in names
    assert "mio2trace = mio2trace.__main__:main" in entry_points


@pytest.mark.network
def test_the_plain_install_is_small(environment: Environment, wheel: Path) -> None:
    """Five libraries in 4 MB, numpy, and a program of 1.5 MiB, packed as well as a wheel can be; no extra's."""
    python = environment("run")
    (folder,) = (python.parent.parent / "lib").glob("python3*/site-packages")
    tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence", "_virtualenv")
    there = {path for path in folder.iterdir() if not path.name.startswith((*tools, "mio2trace", "__pycache__"))}
    installed = {path.name.partition("-")[0] for path in there if path.suffix == ".dist-info"}
    assert {_name(name) for name in installed} == {_name(line) for line in PROJECT["dependencies"]}
    files = (
        file for path in there for file in ([path] if path.is_file() else path.rglob("*")) if file.suffix != ".pyc"
    )
    small = (file for file in files if file.is_file() and "numpy" not in str(file))
    assert sum(file.stat().st_size for file in small) < 4_000_000
    with zipfile.ZipFile(wheel) as archive:
        packed = {member.filename: zlib.compress(archive.read(member), 9) for member in archive.infolist()}
    least = sum(map(len, packed.values())) + sum(2 * len(name) + 98 for name in packed)
    assert wheel.stat().st_size < 1.01 * least, "a zip archive of these files is not smaller: nothing else is in it"
    assert wheel.stat().st_size < 3 << 19


@pytest.mark.network
@pytest.mark.parametrize("libraries", ["run", "minimum"])
def test_the_installed_wheel_converts_like_the_source(environment: Environment, tmp_path: Path, libraries: str) -> None:
    python = environment(libraries)
    program = python.parent / "mio2trace"
    args = [str(RUN / "run.log"), str(RUN / "prof.json.gz"), "--check", "-q", "-o"]
    here = {**os.environ, "PYTHONPATH": str(ROOT / "timeline")}
    subprocess.run([sys.executable, "-m", "mio2trace", *args, str(tmp_path / "tree.json")], env=here, check=True)
    assert ran([program, *args, "wheel.json"], tmp_path).returncode == 0
    assert (tmp_path / "wheel.json").read_bytes() == (tmp_path / "tree.json").read_bytes()
    assert ran([program, "--version"], tmp_path).stdout == f"mio2trace {__version__}\n"
    helped = ran([python, "-c", EACH_HELP], tmp_path)
    assert helped.returncode == 0, helped.stderr
    assert helped.stdout.count("Usage: mio2trace") > 15
    (tmp_path / "bad.json").write_text('[{"call": "clX"')
    refused = ran([program, "bad.json", "-o", "o.json"], tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    wrong = ran([program, "ops", "--frobnicate"], tmp_path)
    assert (wrong.returncode, "No such option" in wrong.stderr) == (2, True)


EACH_HELP = """
from mio2trace.cli import cli
import click

context = click.Context(cli, info_name="mio2trace")
for name in cli.list_commands(context):
    command = cli.get_command(context, name)
    print(command.get_help(click.Context(command, info_name=name, parent=context)))
"""


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``uvx``, ``pipx`` and ``hatchling``."""
    folder = tmp_path_factory.mktemp("runners")
    venv.create(folder)
    pip(folder / "bin" / "python", "install", "-q", "uv", "pipx", "hatchling")
    return folder / "bin"


@pytest.mark.network
@pytest.mark.parametrize("runner", ["uvx", "pipx"])
def test_it_runs_without_being_installed(runner: str, runners: Path, tmp_path: Path) -> None:
    """The README's line, of the source tree."""
    words = ["--no-config", "--from", str(ROOT)] if runner == "uvx" else ["run", "--spec", str(ROOT)]
    homes = runners.parent
    here = clean(UV_CACHE_DIR=str(homes / "uv"), PIPX_HOME=str(homes / "pipx"), UV_PYTHON=sys.executable)
    inputs = str(RUN / "run.log"), str(RUN / "prof.json.gz")
    done = ran([str(runners / runner), *words, "mio2trace", *inputs, "-q", "-o", "out.json"], tmp_path, here)
    if "Failed to fetch" in done.stderr:
        missing("network", f"{runner}: no index of packages to be had")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.json").stat().st_size > 10_000


@pytest.mark.network
def test_the_source_distribution_builds_the_same_wheel(wheel: Path, runners: Path, tmp_path: Path) -> None:
    """It has all that the build and the tests need, and nothing that a working tree gathers."""
    built = [str(runners / "hatchling"), "build", "-t", "sdist", "-d", str(tmp_path)]
    done = ran(built, ROOT)
    assert done.returncode == 0, done.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ["README.md", "CHANGELOG.md", "pyproject.toml", "tests/conftest.py", "traces/README.md", "docs/conf.py"]
    assert set(needed) <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "build/"))]
    pip(Path(sys.executable), "wheel", "--no-deps", "-q", "-w", str(tmp_path), str(sdist))
    (second,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(second) as other:
        assert {name: one.read(name) for name in one.namelist()} == {
            name: other.read(name) for name in other.namelist()
        }


@pytest.mark.network
def test_the_tests_pass_with_the_oldest_libraries(environment: Environment, tmp_path: Path) -> None:
    python = environment("minimum")
    tools = tmp_path / "tools"
    pip(python, "install", "-q", "--target", str(tools), "pytest>=8", "hypothesis>=6.100")
    chosen = ["test_damage.py", "test_chrome_json.py", "test_ck.py", "test_run_log.py"]
    words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(f"tests/{name}" for name in chosen)]
    result = ran([python, *words], ROOT, clean(PYTHONPATH=f"{tools}{os.pathsep}{ROOT / 'timeline'}"))
    assert result.returncode == 0, result.stdout[-3000:]


def test_without_the_real_samples_every_module_is_collected_also_below_another_test(tmp_path: Path) -> None:
    """To skip while a module is collected is an error of it."""
    modules = ("test_ck.py", "test_native.py", "test_ops_command.py", "test_report.py")
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *(f"tests/{name}" for name in modules)]
    more = {"PYTEST_CURRENT_TEST": "another", "MIO2TRACE_SHARED": str(tmp_path)}
    result = ran([sys.executable, *words], ROOT, clean(PYTHONPATH=str(ROOT / "timeline"), **more))
    assert result.returncode == 0, result.stdout[-3000:]


NO_NETWORK = """
import sys

def refuse(event, args):
    if event.startswith("socket.") or event in ("urllib.Request", "http.client.connect", "ftplib.connect"):
        raise SystemExit(f"network: {event} {args}")

sys.addaudithook(refuse)
from mio2trace import cli
sys.argv[0] = "mio2trace"
cli.main()
"""


@pytest.mark.parametrize(
    "args",
    [
        ["run.log", "prof.json.gz", "-o", "OUT.json.gz", "--check"],
        ["ops", "MIOPEN", "--format", "json"],
        ["driver", "MIOPEN"],
        ["--help"],
    ],
    ids=lambda args: args[0],
)
def test_nothing_at_run_time_uses_the_network(tmp_path: Path, args: list[str]) -> None:
    """Python's own audit would tell of every socket; only `view` has one, on the loopback."""
    log = tmp_path / "miopen.log"
    log.write_text("MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 3 -H 8 -W 8 -k 4 -t 1\n")
    names = {"run.log": RUN / "run.log", "prof.json.gz": RUN / "prof.json.gz", "OUT.json.gz": tmp_path / "o.json.gz"}
    names["MIOPEN"] = log
    command = [sys.executable, "-c", NO_NETWORK, *(str(names.get(arg, arg)) for arg in args)]
    result = ran(command, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT / "timeline")})
    assert result.returncode == 0, result.stderr


def test_a_socket_at_run_time_would_be_seen() -> None:
    probe = NO_NETWORK.replace("cli.main()", "import socket; socket.socket()")
    assert "network: socket" in ran([sys.executable, "-c", probe], ROOT).stderr


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return found[0].lower().replace("_", "-")


@pytest.mark.parametrize("name", ["run", "dev", "minimum", "release"])
def test_requirements_are_pinned_with_hashes_and_name_no_index(name: str) -> None:
    text = (REQUIREMENTS / f"{name}.txt").read_text()
    pins = {found[1]: found[2] for found in PIN.finditer(text + "\n")}
    rest = "".join(line for line in PIN.sub("", text + "\n").splitlines(True) if not line.startswith("#")).strip()
    assert rest == "", f"not a pin with hashes: {rest[:200]}"
    assert not re.search(r"https?:|file:|--(?:extra-)?index|--find-links|--trusted|@", text)
    wanted = ["build", "hatchling"] if name == "release" else list(PROJECT["dependencies"])
    if name == "dev":
        extras = PROJECT["optional-dependencies"]
        wanted += [one for extra in extras.values() for one in extra if not one.startswith("mio2trace")]
    assert {_name(one) for one in wanted} <= set(pins)
    if name == "minimum":
        oldest = {_name(one): one.partition(";")[0].split(">=")[1] for one in PROJECT["dependencies"]}
        for package, version in oldest.items():
            assert pins[package] in (version, f"{version}.0"), package
