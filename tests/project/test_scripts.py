"""Test each command of scripts/ by a run that shows its help, and what they refuse before they install anything."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bench
import demo
import docs
import release
import tool
from benchmarks.result import Result
from gputune.runtime.devices.discovery import HUNG, DeviceReport
from tests import conftest as rules
from tests import devices
from tests.client.contexts import DEVICE, small_context

ROOT = Path(__file__).parents[2]
NOTHING_INSTALLED = "apt_install() { say INSTALLING; return 1; }; intel_from_pypi() { say INSTALLING; return 1; }"


def bash(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = f'source scripts/setup; python="{sys.executable}"; {NOTHING_INSTALLED}; {program}'
    environment = os.environ | environment
    return subprocess.run(["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("value", "failure"), [("true", True), ("woodpecker", True), ("False", False), ("0", False), ("", False)]
)
def test_a_missing_device_is_a_failure_under_any_ci(monkeypatch: pytest.MonkeyPatch, value: str, failure: bool) -> None:
    monkeypatch.setenv("CI", value)
    monkeypatch.setattr(rules, "_why_no_opencl", lambda: "no driver is installed")
    item: Any = SimpleNamespace(get_closest_marker={"opencl": pytest.mark.opencl}.get)
    with pytest.raises(pytest.fail.Exception if failure else pytest.skip.Exception, match="no driver is installed"):
        rules.pytest_runtest_setup(item)


def test_a_driver_that_hung_is_no_reason_to_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is too busy, one process of a run once skipped all of its 54 tests, and the run ended well."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("tests.devices.discover", lambda: [DeviceReport(-1, None, "a.icd", False, f"{HUNG} for 10 s")])
    monkeypatch.setattr("tests.devices.devices", devices.devices.__wrapped__)
    monkeypatch.setattr(rules, "_why_no_opencl", rules._why_no_opencl.__wrapped__)
    item: Any = SimpleNamespace(get_closest_marker={"opencl": pytest.mark.opencl}.get)
    with pytest.raises(pytest.fail.Exception, match="there is a driver"):
        rules.pytest_runtest_setup(item)


@pytest.mark.slow
def test_where_no_driver_is_found_the_whole_run_says_so(tmp_path: Path) -> None:
    environment = os.environ | {"CI": "true", "OCL_ICD_VENDORS": str(tmp_path), "OPENCL_VENDOR_PATH": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/opencl/kernels/test_softmax.py"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert {word for word in ("passed", "error", "skipped") if f" {word}" in run.stdout.splitlines()[-1]} == {"error"}


@pytest.mark.parametrize("value", [None, "false"])
def test_continuous_integration_says_so(tmp_path: Path, value: str | None) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "scripts" / "test").write_text('#!/bin/sh\necho "$CI $*"\n')
    (tmp_path / "scripts" / "test").chmod(0o755)
    environment = {name: text for name, text in os.environ.items() if name != "CI"}
    environment |= {} if value is None else {"CI": value}
    run = subprocess.run([tmp_path / ".ci" / "run", "-x"], env=environment, capture_output=True, text=True)
    assert run.stdout == "true -x\n"


@pytest.mark.night
@pytest.mark.opencl
def test_a_device_that_is_named_wrongly_installs_nothing() -> None:
    run = bash("opencl_device", GPUTUNE_DEVICE="no such device")
    assert run.returncode == 4
    assert "GPUTUNE_DEVICE: no device matches 'no such device'" in run.stderr
    assert "usable" in run.stderr
    assert "INSTALLING" not in run.stderr


@pytest.mark.slow
def test_without_any_device_one_is_installed(tmp_path: Path) -> None:
    run = bash("pocl_from_debian() { apt_install; }; opencl_device", OCL_ICD_VENDORS=str(tmp_path), GPUTUNE_DEVICE="x")
    assert run.returncode == 1
    assert run.stderr.count("INSTALLING") == 2


NO_COMPILER = """
command() { [[ " $there " == *" $2 "* ]]; }
apt_works() { $root_works; }
pip_install() { say "PIP $*"; $pip_works; }
apt_install() { say "APT $*"; $apt_installs; }
python() { [[ $there == *ziglang* ]]; }
python=python
"""
"""What there is says `there`; what works say the other variables."""


@pytest.mark.parametrize(
    ("variables", "code", "called"),
    [
        ({"there": "cc"}, 0, []),
        ({"there": "clang"}, 0, []),
        ({"there": "ziglang"}, 0, []),
        ({"GPUTUNE_CC": "none"}, 0, []),
        ({"CC": "tcc"}, 0, []),
        ({"root_works": "true"}, 0, ["APT gcc libc6-dev"]),
        ({"root_works": "true", "apt_installs": "false"}, 0, ["APT gcc libc6-dev", "PIP ziglang"]),
        ({}, 0, ["PIP ziglang"]),
        ({"pip_works": "false"}, 1, ["PIP ziglang"]),
    ],
)
def test_a_compiler_comes_from_pypi_where_apt_does_not_work(
    variables: dict[str, str], code: int, called: list[str]
) -> None:
    usual = {
        "there": "",
        "root_works": "false",
        "apt_installs": "true",
        "pip_works": "true",
        "CC": "",
        "GPUTUNE_CC": "",
    }
    run = bash(f"{NO_COMPILER} cc_of_native_parts", **{"GPUTUNE_CC": "", **usual, **variables})
    assert run.returncode == code, run.stderr
    assert [line for line in run.stderr.splitlines() if line.startswith(("APT", "PIP"))] == called
    assert ("gputune runs no contexts" in run.stderr) == bool(code)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--effort", "fast"], 2),
        (["--device"], 2),
        (["page.png"], 2),
    ],
)
def test_the_demo_checks_its_arguments_first(tmp_path: Path, arguments: list[str], code: int) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("demo", "setup"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    with (tmp_path / "scripts" / "setup").open("a") as setup:
        setup.write("python_environment() { say SETTING UP; exit 9; }\n")
    run = subprocess.run([tmp_path / "scripts" / "demo", *arguments], capture_output=True, text=True)
    assert run.returncode == code
    assert "scripts/demo " in (run.stderr if code else run.stdout)
    assert "SETTING UP" not in run.stderr


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The commands in a folder of their own, where Python and apt-get only write down that they were called."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("bin/apt-get", "bin/sudo", ".venv/bin/python"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$*" | tee -a {tmp_path}/called\n')
        (tmp_path / name).chmod(0o755)
    return tmp_path


def help_of(command: str, clone: Path) -> subprocess.CompletedProcess[str]:
    """What a command of the clone says to --help when it is called from its own folder."""
    path = clone / "scripts" / command
    environment = os.environ | {"PATH": f"{clone / 'bin'}:{os.environ['PATH']}", "PYTHON": "/no/python"}
    return subprocess.run(
        [f"./{path.name}", "--help"], cwd=path.parent, env=environment, capture_output=True, text=True
    )


COMMANDS = [str(path.relative_to(ROOT / "scripts")) for path in docs.executables()]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_installs_nothing(command: str, clone: Path) -> None:
    run = help_of(command, clone)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[0] in (ROOT / "scripts" / command).read_text().splitlines()[1]
    assert not (clone / "called").exists()


MODULES = {
    command: found[1]
    for command in COMMANDS
    if (found := re.search(r"^run_module ([\w.]+) ", (ROOT / "scripts" / command).read_text(), re.MULTILINE))
}


@pytest.mark.parametrize("command", MODULES)
def test_a_command_of_python_shows_its_options(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [command, "--help"])
    module = importlib.import_module(MODULES[command])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


_PYTHON = """#!/bin/sh
echo "$*" >>{root}/called
if [ "$2" = venv ]; then mkdir -p "$4/bin" && cp "$0" "$4/bin/python"; fi
"""
"""A Python that writes down what it is called for, and makes environments of its kind."""


@pytest.mark.parametrize(("marked", "used"), [("", "build/venv"), ("made_by_setup", ".venv"), ("installed", ".venv")])
def test_an_environment_that_others_have_made_is_left_alone(marked: str, used: str, tmp_path: Path) -> None:
    for name in ("scripts/setup", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    own = tmp_path / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    for path in (own, tmp_path / "python"):
        path.write_text(_PYTHON.format(root=tmp_path))
        path.chmod(0o755)
    if marked:
        (tmp_path / ".venv" / marked).touch()
    program = "source scripts/setup; python_environment; echo $python"
    environment = os.environ | {"PYTHON": str(tmp_path / "python")}
    ran = subprocess.run(["bash", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.stdout == f"{tmp_path}/{used}/bin/python\n", ran.stderr
    called = (tmp_path / "called").read_text()
    assert f"--editable {tmp_path}[dev]" in called
    assert (tmp_path / used / "made_by_setup").exists() and (tmp_path / used / "installed").read_text()
    if not marked:
        assert [path.name for path in (tmp_path / ".venv").iterdir()] == ["bin"]
        assert f"-m venv --clear {tmp_path}/build/venv" in called


@pytest.mark.parametrize(("command", "module"), [("bench", "bench"), ("models/beside", "models.beside")])
def test_help_shows_options_when_all_is_installed(command: str, module: str, clone: Path) -> None:
    stamp = f'root={clone}; eval "$(grep ^wanted_stamp scripts/setup)"; wanted_stamp >.venv/installed'
    subprocess.run(["bash", "-c", stamp], cwd=clone, check=True)
    assert help_of(command, clone).stdout == f"-m {module} --help\n"


@pytest.mark.parametrize(("there", "calls"), [(True, 1), (False, 2)])
def test_the_site_installs_what_is_missing(there: bool, calls: int) -> None:
    python = f'python() {{ echo "$*"; [[ "$1" != -c || {int(there)} = 1 ]]; }}; python=python'
    stubs = f"{python}; python_environment() {{ :; }}; run_module() {{ :; }}"
    script = (ROOT / "scripts" / "docs").read_text().split("source scripts/setup\n")[1]
    run = subprocess.run(
        ["bash", "-c", f"source scripts/setup; {stubs}; {script}", "docs", "--site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    said = run.stdout.splitlines()
    assert (run.returncode, len(said)) == (0, calls)
    assert there or said[-1].endswith(f"--editable {ROOT}[docs]")


@pytest.mark.night
def test_the_first_line_of_a_man_page_fits_whatever_the_command_is_called(tmp_path: Path) -> None:
    core = tmp_path / "click_man" / "core.py"
    core.parent.mkdir()
    core.write_text(
        "def generate_man_page(context, **_):\n"
        "    name = context.command_path\n"
        '    return f\'.TH "{name.upper()}" "1" "2026-01-01" "1" "{name} Manual"\\n.SH NAME\\n\'\n'
    )
    pages = tmp_path / "man"
    pages.mkdir()
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", release.PAGES, pages], env=environment, check=True)
    heads = {page.stem: page.read_text().splitlines()[0].split('"') for page in pages.iterdir()}
    assert heads["gputune-farm-tune"][9] == "gputune farm tune"
    assert [name for name, head in heads.items() if 2 * len(f"{head[1]}(1)") + len(head[9]) + 4 > 78] == []


@pytest.mark.parametrize(
    ("profile", "compiled", "equal", "high", "warnings", "failed"),
    [
        (0, 0, True, 0.99, [], 0),
        (1, 0, True, 0.99, [], 1),
        (0, 1, True, 0.99, [], 1),
        (0, 0, False, 0.99, [], 1),
        (0, 0, False, 1.2, [], 0),
        (1, 0, False, 0.99, ["1 of 37 tasks ended early: the machine was too busy"], 0),
        (0, 0, False, 0.99, ["1 of 37 tasks ended early: the machine was too busy"], 1),
    ],
)
def test_the_demo_fails_for_requests_and_for_another_context_but_not_for_time(
    profile: int, compiled: int, equal: bool, high: float, warnings: list[str], failed: int, tmp_path: Path
) -> None:
    """A choice that is open, or a task that a busy machine has left unfinished, may lead to another context."""
    check = demo.Checks()
    gain = {"median": 0.98, "low": 0.9, "high": high, "rounds": 30}
    told = {"untuned_ns": 2e6, "gain": gain, "kept": "untuned"}
    totals = {"profile_requests": profile, "compile_requests": compiled}
    runs = []
    for name, seconds, tier in (("first", 1.0, "one"), ("second", 2.0, "one" if equal else "two")):
        summary = {"tasks": [], "totals": totals, "end_to_end": told, "warnings": warnings}
        runs.append(tool.Run(summary, seconds, tmp_path / name))
        runs[-1].context.parent.mkdir()
        small_context(runs[-1].context, tuning_effort=tier)
    demo.check_warm(check, *runs)
    assert len(check.failed) == failed


@pytest.mark.parametrize("name", ["global_memory_bytes", "compute_units"])
def test_the_demo_forgives_a_driver_that_says_another_size_of_memory(name: str, tmp_path: Path) -> None:
    small_context(tmp_path / "one.bin", device={**DEVICE})
    small_context(tmp_path / "two.bin", device={**DEVICE, name: 3 << 20})
    assert demo.same_but_for_memory(tmp_path / "one.bin", tmp_path / "two.bin") == (name == "global_memory_bytes")


def test_a_benchmark_says_first_that_the_machine_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[object] = []

    class Looked:
        def __init__(self, machines: object, progress: object, minutes: int | None) -> None:
            steps.append(minutes)

        def settle(self) -> None:
            steps.append("settled")

    monkeypatch.setattr(bench, "Quiet", Looked)

    def measured(options: object) -> Result:
        steps.append("measured")
        return Result({}, ())

    monkeypatch.setattr(bench.BENCHES["search"], "run", measured)
    assert bench.main(["--wait_for_quiet", "3", "search"]) == 0
    assert steps == [3, "settled", "measured"]
