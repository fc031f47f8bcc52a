"""Test each kind of finding of the doctor, with fakes for what it examines."""

import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gputune.client
from gputune.client.advice import ADVICE
from gputune.client.doctor import contexts, diagnosis, drivers, onnxruntime, software
from gputune.client.doctor.contexts import check_contexts
from gputune.client.doctor.diagnosis import Question, diagnose
from gputune.client.doctor.drivers import check_drivers
from gputune.client.doctor.findings import Area, Finding, exit_code, softened
from gputune.client.doctor.onnxruntime import check_onnxruntime
from gputune.client.doctor.settings import check_settings
from gputune.client.doctor.software import check_software, failure_of
from gputune.client.doctor.target import check_target
from gputune.client.errors import TargetError
from gputune.client.target.adb import agent as adb_agent
from gputune.client.target.adb import device as adb_device
from gputune.client.target.adb import python as adb_python
from gputune.client.target.adb.agent import Agent, Missing
from gputune.client.target.adb.device import Seen
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport
from gputune.runtime.native import building
from gputune.runtime.native.building import REMEDY, NotBuilt
from gputune.server.protocol.errors import ERROR_NAMES
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import PROTOCOL_VERSION, StatusReport
from tests.unused_ports import unused_port

SECRET = "a token that nobody may see"


def of(findings: list[Finding], status: str) -> list[str]:
    return [finding.line for finding in findings if finding.status == status]


def report(name: str, usable: bool = True) -> DeviceReport:
    assert NULL_REPORT.identity is not None
    identity = replace(NULL_REPORT.identity, name=name, platform="Test", driver="test.icd")
    return DeviceReport(0, identity, "test.icd", usable, "" if usable else "computed a wrong result")


# --- findings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("areas", "code"),
    [([], 0), (["target"], 4), (["adb"], 4), (["drivers"], 8), (["target", "device"], 8), (["software", "adb"], 8)],
)
def test_the_exit_code_says_what_to_put_right_first(areas: list[Area], code: int) -> None:
    findings = [Finding("settings", "note", "a note"), *(Finding(area, "problem", "no", "do") for area in areas)]
    assert exit_code(findings) == code
    assert exit_code(softened(findings)) == 0


def test_a_problem_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="without advice"):
        Finding("adb", "problem", "no adb")


def test_there_is_advice_for_every_error_of_a_target() -> None:
    client = Path(gputune.client.__file__).parent
    files = client.rglob("*.py")
    raised = set(ERROR_NAMES)
    for file in files:
        text = file.read_text(encoding="utf-8")
        for pattern in (r'TargetError\(\s*"(\w+)"', r'"(adb_(?:un|off|not)\w+)"'):
            raised.update(re.findall(pattern, text))
    assert {"unreachable", "adb_unauthorized"} <= raised <= set(ADVICE)


# --- software -------------------------------------------------------------------------------------


def test_a_missing_package_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "onnx":
            raise metadata.PackageNotFoundError(name)
        return "7.7"

    requires = ["numpy>=1.26", "onnx>=1.17", 'pytest>=8.0; extra == "dev"']
    monkeypatch.setattr(software, "metadata", SimpleNamespace(
        version=version, requires=lambda _: requires, PackageNotFoundError=metadata.PackageNotFoundError,
    ))  # fmt: skip
    findings = check_software()
    assert of(findings, "problem") == ["the package onnx is not installed"]
    assert "numpy 7.7" in of(findings, "ok")


def test_onnxruntime_need_not_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert of([check_onnxruntime()], "note") == ["onnxruntime is not installed: contexts run without it"]


def test_contexts_may_not_run_in_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_ONNXRUNTIME_LIBRARY", str(tmp_path / "missing"))
    (line,) = of([check_onnxruntime()], "note")
    assert line.startswith("GPUTUNE_ONNXRUNTIME_LIBRARY: ")
    monkeypatch.setenv("GPUTUNE_ONNXRUNTIME_LIBRARY", sys.executable)
    (line,) = of([check_onnxruntime()], "note")
    assert line.startswith(
        f"contexts do not run in onnxruntime: onnxruntime cannot load {Path(sys.executable).resolve()}: "
    )
    monkeypatch.setattr(onnxruntime, "_REGISTER", "import os; os.abort()")
    assert of([check_onnxruntime()], "note") == ["contexts do not run in onnxruntime: signal 6"]


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for native/, with a library in it that serves as the C runtime."""
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "runtime.so"
    library.touch()
    monkeypatch.setattr(building, "FOLDER", tmp_path)
    monkeypatch.setattr(contexts, "runtime_library", lambda: library)
    monkeypatch.delenv("GPUTUNE_RUNTIME_LIBRARY", raising=False)
    return library


def test_where_the_c_runtime_comes_from_is_told(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_contexts().line == f"contexts run by the C runtime, from the wheel ({runtime})"
    monkeypatch.setattr(building, "FOLDER", runtime.parent)
    assert check_contexts().line == f"contexts run by the C runtime, compiled on this machine ({runtime})"
    monkeypatch.setenv("GPUTUNE_RUNTIME_LIBRARY", str(runtime))
    assert check_contexts().line == f"contexts run by the C runtime, by GPUTUNE_RUNTIME_LIBRARY ({runtime})"


def test_what_runs_no_contexts_is_a_problem(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Path:
        raise NotBuilt("there is no C compiler")

    monkeypatch.setattr(contexts, "runtime_library", refuse)
    found = check_contexts()
    line = "no context runs here, because the C runtime is not here: there is no C compiler"
    assert (found.status, found.line, found.advice) == ("problem", line, REMEDY)


def test_a_command_that_fails_is_told_by_its_last_line() -> None:
    assert failure_of(["sh", "-c", "true"], 30) == ""
    assert failure_of(["sh", "-c", "echo one >&2; echo two >&2; exit 3"], 30) == "two"
    assert failure_of(["sh", "-c", "kill -SEGV $$"], 30) == "signal 11"
    assert failure_of(["sleep", "60"], 0.1) == "no answer for 0.1 s"
    assert "cannot be started" in failure_of(["/no/such/program"], 1)


# --- settings -------------------------------------------------------------------------------------


def test_settings_are_told_and_a_token_is_not_shown() -> None:
    environment = {
        "GPUTUNE_TOKEN": SECRET, "GPUTUNE_DEVICE": "Adreno", "POCL_AFFINITY": "0", "OCL_ICD_VENDORS": "/v",
        "HOME": "/h",
    }  # fmt: skip
    findings = check_settings(environment)
    text = repr(findings)
    assert SECRET not in text
    assert "/h" not in text
    for words in ("GPUTUNE_TOKEN is set", "GPUTUNE_DEVICE=Adreno", "OCL_ICD_VENDORS=/v", "vary by a factor of two"):
        assert words in text
    assert of(check_settings({}), "ok") == ["no environment variable changes the device, the target or a driver"]


def test_a_token_that_cannot_be_one_is_a_finding(gputune: Any, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = check_settings({"GPUTUNE_TOKEN": "short"})
    assert "GPUTUNE_TOKEN: the token has 5 characters" in finding.line
    assert finding.advice.startswith("change or unset GPUTUNE_TOKEN")
    monkeypatch.setattr(diagnosis, "discover", list)
    monkeypatch.setenv("GPUTUNE_TOKEN", "short")
    ran = gputune("doctor", "--target", f"127.0.0.1:{port}")
    assert ran.code == 4
    assert "PROBLEM  GPUTUNE_TOKEN: the token has 5 characters" in ran.out


def test_the_help_does_not_promise_a_server(gputune: Any) -> None:
    assert "Start a target server" not in gputune("doctor", "--help").out
    assert "Start a target server" in gputune("target-status", "--help").out


# --- drivers --------------------------------------------------------------------------------------


@pytest.fixture
def vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of .icd files, the only one."""
    folder = tmp_path / "vendors"
    folder.mkdir()
    monkeypatch.setenv("OCL_ICD_VENDORS", str(folder))
    monkeypatch.setattr(drivers, "_IMPORT", "")  # pyopencl need not be there
    monkeypatch.setattr(drivers, "LOADERS", ("libc.so.6",))  # nor a loader of the system
    return folder


def test_no_driver_is_a_problem(vendors: Path) -> None:
    findings = check_drivers([], None)
    assert f"no driver in {vendors}" in of(findings, "note")
    assert of(findings, "problem") == ["no OpenCL driver is installed"], "what follows from it is no problem of its own"
    assert exit_code(findings) == 8
    asked = of(check_drivers([], "adreno"), "problem")
    assert len(asked) == 2 and "adreno" in asked[1], "which device was asked for is another question"


def test_a_library_that_cannot_be_loaded_is_named(vendors: Path) -> None:
    (vendors / "good.icd").write_text("libc.so.6\n")
    (vendors / "gone.icd").write_text("libgone-1.so\n")
    (vendors / "empty.icd").write_text("")
    findings = drivers.check_files()
    empty, gone = of(findings, "problem")
    assert "empty.icd names no library" in empty
    assert "gone.icd: libgone-1.so cannot be loaded" in gone
    assert "No such file" in gone
    assert of(findings, "ok") == [f"{vendors / 'good.icd'}: libc.so.6 can be loaded"]


@pytest.mark.parametrize(
    ("variable", "loaders", "status", "said"),
    [
        (None, ("libgone.so.1", "libc.so.6"), "ok", "programs in C find libc.so.6"),
        (None, ("libgone.so.1",), "note", "is for Python only: install one (Debian's ocl-icd-libopencl1)"),
        ("libm.so.6", ("libgone.so.1",), "ok", "programs in C find libm.so.6"),
        ("libother.so", ("libc.so.6",), "note", "`gputune export`, find no libother.so here"),
    ],
)
def test_what_programs_in_c_find_is_told(
    variable: str | None, loaders: Sequence[str], status: str, said: str, vendors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "LOADERS", loaders)
    monkeypatch.delenv(drivers.LIBRARY_VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(drivers.LIBRARY_VARIABLE, variable)
    findings = check_drivers([report("good")], None)
    assert exit_code(findings) == 0, "what only C needs is no problem of Python"
    [line] = [line for line in of(findings, status) if "programs in C" in line]
    assert line.endswith(said)


def test_a_broken_driver_beside_a_working_one_stops_nothing(vendors: Path) -> None:
    (vendors / "gone.icd").write_text("libgone-1.so\n")
    findings = check_drivers([report("good"), report("bad", usable=False)], None)
    assert exit_code(findings) == 0
    assert any("bad" in line and "wrong result" in line for line in of(findings, "note"))
    assert any(line.startswith("using #0 good") for line in of(findings, "ok"))


def test_a_device_that_is_asked_for_and_not_there_is_a_problem(vendors: Path) -> None:
    findings = check_drivers([report("good")], "Adreno")
    (finding,) = [f for f in findings if f.area == "device"]
    assert finding.status == "problem"
    assert finding.advice == "change or unset GPUTUNE_DEVICE"
    assert exit_code(check_drivers([report("bad", usable=False)], "null")) == 0, "the null device needs no driver"


def test_pyopencl_that_cannot_be_imported_is_a_problem(vendors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "_IMPORT", "raise ImportError('libOpenCL.so.1 is not there')")
    assert "pyopencl cannot be imported: ImportError: libOpenCL.so.1 is not there" in of(
        check_drivers([], None), "problem"
    )


# --- target ---------------------------------------------------------------------------------------


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


class FakeClient:
    """A connection to a server in good order, or whose worker was started again."""

    address = "board:22598"
    limits = Limits()

    def __init__(self, restarts: int = 0) -> None:
        identity = report("Adreno").identity
        assert identity is not None
        self.device = identity.to_dict()
        self.server: dict[str, object] = {}
        self.why_no_contexts = ""
        self._restarts = restarts

    def status(self) -> StatusReport:
        return StatusReport(
            software="gputune 7", device=self.device, uptime_seconds=60.0, clients=3, queued=2, running="",
            worker_restarts=self._restarts, last_restart="SIGSEGV while launching", requests={},
            memory_bytes=0, state={},
        )  # fmt: skip

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *error: object) -> None:
        pass


def refusing(name: str) -> Callable[[], Any]:
    def connect() -> Any:
        raise TargetError(name, "the server refuses")

    return connect


def test_a_target_that_answers_is_told_with_what_it_says(port: int) -> None:
    client: Any = FakeClient(restarts=2)
    findings = check_target(f"127.0.0.1:{port}", "--target", lambda: client)
    assert exit_code(findings) == 0
    assert of(findings, "ok")[-3] == f"it is gputune 7, protocol {PROTOCOL_VERSION}, up 1 min 0 s"
    assert of(findings, "ok")[-2].startswith("its device is Adreno (Test")
    assert of(findings, "ok")[-1] == "its clients: 3; running: nothing; 2 requests waiting"
    assert "2 times, last because SIGSEGV while launching" in of(findings, "note")[0]


def test_a_target_that_runs_no_contexts_is_a_problem(port: int) -> None:
    client: Any = FakeClient()
    client.why_no_contexts = "there is no C compiler; install one"
    findings = check_target(f"127.0.0.1:{port}", "--target", lambda: client)
    assert of(findings, "problem") == ["it runs no contexts: there is no C compiler; install one"]


def test_an_agent_is_reached_by_the_server_that_is_started_for_it() -> None:
    """Its address is no server's, so nothing connects to that."""
    client: Any = FakeClient()
    findings = check_target("agent:no.such.host#1", "--target", lambda: client)
    assert exit_code(findings) == 0
    assert of(findings, "ok")[0] == "agent:no.such.host#1 is the target (from --target)"
    assert of(findings, "ok")[1].startswith("it is gputune 7")


@pytest.mark.parametrize("name", ["token_required", "authentication_failed", "version_mismatch", "not_a_target_server"])
def test_a_refusal_is_told_with_what_to_do(port: int, name: str) -> None:
    findings = check_target(f"127.0.0.1:{port}", "--target", refusing(name))
    assert findings[-1] == Finding("target", "problem", f"the server refuses [{name}]", ADVICE[name], 4)
    assert exit_code(findings) == 4


def test_what_is_no_address_is_the_callers_mistake() -> None:
    """As of all commands that take one."""
    findings = check_target("nonsense", "--target", refusing("never asked"))
    assert [finding.status for finding in findings] == ["problem"]
    assert exit_code(findings) == 2
    here = Finding("drivers", "problem", "no driver", "install one")
    assert exit_code([*findings, here]) == 8, "what is wrong with this machine is put right first"


def test_the_steps_before_the_handshake_are_told_apart(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = refusing("internal_error")

    def line(address: str) -> str:
        (problem,) = of(check_target(address, "--target", connect), "problem")
        return problem

    assert "is not HOST:PORT" in line("nonsense")
    assert "the name no-such-host.invalid cannot be resolved" in line(f"no-such-host.invalid:{port}")
    free = unused_port()
    assert line(f"127.0.0.1:{free}") == f"nothing listens on port {free} of 127.0.0.1"

    def slow(*arguments: object) -> Any:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", slow)
    assert "does not answer within 5 s" in line(f"127.0.0.1:{port}")


# --- adb ------------------------------------------------------------------------------------------


NO_AGENT = Missing("no agent was built for it", "build one")


def seeing(
    monkeypatch: pytest.MonkeyPatch,
    *states: str,
    python: str | None = "python3",
    agent: Agent | Missing = NO_AGENT,
) -> None:
    """adb lists devices A, B, ... with these states; the one in use has this Python and this agent."""

    def find(serial: str | None) -> Any:
        if "device" in states:
            return SimpleNamespace(serial=serial or "A")
        raise TargetError("adb_no_device", f"adb lists no device {serial}")

    listed = [Seen(name, state) for name, state in zip("ABC", states, strict=False)]
    monkeypatch.setattr(adb_device, "devices", lambda: listed)
    monkeypatch.setattr(adb_device, "find", find)
    monkeypatch.setattr(adb_python, "choose_python", lambda device, wanted: wanted or python)
    monkeypatch.setattr(adb_agent, "find_agent", lambda device: agent)


# --- the whole --------------------------------------------------------------------------------------


@pytest.fixture
def broken_machine(monkeypatch: pytest.MonkeyPatch, vendors: Path) -> None:
    """No driver, nothing on the default port, and no onnxruntime."""
    monkeypatch.setattr(diagnosis, "discover", list)
    monkeypatch.setattr(diagnosis, "check_onnxruntime", lambda: Finding("software", "note", "it is not installed"))
    monkeypatch.setattr(diagnosis, "DEFAULT_PORT", 1)


def test_drivers_matter_only_where_no_target_is_asked_for(broken_machine: None, port: int) -> None:
    client: Any = FakeClient()
    address = f"127.0.0.1:{port}"
    asked: list[str] = []

    def connect(to: str) -> Any:
        asked.append(to)
        return client

    here = Question(None, False, None, None, connect)
    assert exit_code(diagnose(here, {})) == 8
    assert exit_code(diagnose(replace(here, target=address), {})) == 0
    assert exit_code(diagnose(here, {"TARGET_SERVER_SOCKET": address})) == 0
    assert asked == [address, address]
    assert exit_code(diagnose(here, {"TARGET_SERVER_SOCKET": "127.0.0.1:1"})) == 4


def test_adb_is_looked_at_where_it_is_asked_for(broken_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seeing(monkeypatch, "device")
    asked = Question(None, True, "A", None, lambda address: refusing("x")())
    findings = diagnose(asked, {"TARGET_SERVER_SOCKET": "127.0.0.1:1"})
    assert exit_code(findings) == 0
    assert {finding.area for finding in findings} >= {"adb", "drivers"}
    assert "target" not in {finding.area for finding in findings}


def test_nobody_misses_a_server_on_the_default_port(broken_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "discover", lambda: [report("good")])
    findings = diagnose(Question(None, False, None, None, lambda address: refusing("x")()), {})
    assert exit_code(findings) == 0
    assert "no target server is used: nothing listens on port 1" in of(findings, "note")[-1]


def test_the_command_prints_findings_and_no_token(
    gputune: Any, broken_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUNE_TOKEN", SECRET)
    ran = gputune("doctor")
    assert ran.code == 8
    assert "PROBLEM  no OpenCL driver is installed" in ran.out
    assert "do: install an OpenCL driver" in ran.out
    as_json = gputune("doctor", "--json")
    content = json.loads(as_json.out)
    assert (as_json.code, content["exit_code"]) == (8, 8)
    assert {"area", "status", "line", "advice", "code"} == set(content["findings"][0])
    assert SECRET not in ran.out + ran.err + as_json.out + as_json.err
    assert os.environ["GPUTUNE_TOKEN"] == SECRET
