"""Test how gputune registers with onnxruntime, on a made-up onnxruntime; tests/onnxruntime runs the real one."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import gputune
from gputune.core.errors import (
    BuildFailed,
    DeviceNotFound,
    LaunchFailed,
    LimitExceeded,
    MalformedEpContext,
    UnknownGraph,
    UntrustedFile,
    WrongDevice,
)
from gputune.runtime import onnxruntime as plugin
from gputune.runtime.native.building import native_part
from gputune.runtime.onnxruntime import PluginError


class Onnxruntime:
    """A version of onnxruntime that finds some devices once our library is registered."""

    def __init__(self, version: str = "1.23.2", found: int = 1, refusal: str = "") -> None:
        self.__version__ = version
        self.found = found
        self.refusal = refusal
        self.registered: dict[str, str] = {}
        self.calls = 0

    class SessionOptions:
        def __init__(self) -> None:
            self.log_severity_level = 2
            self.entries: dict[str, str] = {}
            self.provider: tuple[list[SimpleNamespace], dict[str, str]] = ([], {})

        def add_session_config_entry(self, name: str, value: str) -> None:
            self.entries[name] = value

        def add_provider_for_devices(self, devices: list[SimpleNamespace], options: dict[str, str]) -> None:
            self.provider = devices, options

    def InferenceSession(self, path: str, options: SessionOptions) -> SimpleNamespace:  # noqa: N802
        if self.refusal:
            raise RuntimeError(self.refusal)
        return SimpleNamespace(path=path, options=options)

    def register_execution_provider_library(self, name: str, path: str) -> None:
        self.calls += 1
        if self.refusal:
            raise RuntimeError(self.refusal)
        assert name not in self.registered
        self.registered[name] = path
        self.variables = dict(os.environ)

    def unregister_execution_provider_library(self, name: str) -> None:
        del self.registered[name]

    def get_ep_devices(self) -> list[SimpleNamespace]:
        names = ["CPUExecutionProvider", *self.found * [*self.registered]]
        return [SimpleNamespace(ep_name=name) for name in names]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A library that the environment names; what is set for drivers goes away again."""
    path = tmp_path / "lib.so"
    path.touch(0o600)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setenv("GPUTUNE_ONNXRUNTIME_LIBRARY", str(path))
    native_part.cache_clear()
    yield path
    native_part.cache_clear()


def present(monkeypatch: pytest.MonkeyPatch, version: str = "1.23.2", found: int = 1, refusal: str = "") -> Onnxruntime:
    made = Onnxruntime(version, found, refusal)
    monkeypatch.setitem(sys.modules, "onnxruntime", made)
    return made


def refused() -> str:
    """The line by which registering is refused."""
    with pytest.raises(PluginError) as error:
        plugin.register()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_it_is_an_attribute_of_gputune_and_not_the_package_of_that_name() -> None:
    assert gputune.onnxruntime is plugin
    assert "onnxruntime" in dir(gputune)
    assert plugin._onnxruntime() is sys.modules["onnxruntime"] is not plugin


def test_registering_twice_is_registering_once(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = present(monkeypatch, found=2)
    assert plugin.devices() == []
    threads = [threading.Thread(target=plugin.register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plugin.register()
    assert made.registered == {plugin.ep_name(): str(library)}
    assert made.calls == 1
    assert [device.ep_name for device in plugin.devices()] == 2 * ["GputuneExecutionProvider"]


def test_what_an_application_registered_itself_stays(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = present(monkeypatch)
    made.register_execution_provider_library(plugin.ep_name(), str(plugin.library_path()))
    plugin.register()
    made.unregister_execution_provider_library(plugin.ep_name())
    plugin.register()
    assert made.calls == 2


@pytest.mark.parametrize("version", ["1.22.1", "0.9", "1.9.0"])
def test_an_older_onnxruntime_is_refused(library: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    present(monkeypatch, version)
    expected = f"onnxruntime {version} is too old for plugins; install it by: pip install 'onnxruntime>=1.23'"
    assert refused() == expected


@pytest.mark.parametrize("version", ["1.23.0", "1.24.0.dev20260101", "2.0"])
def test_a_newer_onnxruntime_is_not(library: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    made = present(monkeypatch, version)
    plugin.register()
    assert made.registered


def test_a_missing_onnxruntime_is_named(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert refused().startswith("onnxruntime is missing (")
    assert refused().endswith("; install it by: pip install 'onnxruntime>=1.23'")


def test_without_a_device_nothing_stays_registered(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = present(monkeypatch, found=0)
    assert "finds no OpenCL device for onnxruntime; `gputune doctor` checks" in refused()
    assert not made.registered
    made.found = 1
    plugin.register()
    assert made.registered


def test_what_onnxruntime_says_becomes_a_line(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    present(monkeypatch, refusal="cannot open\n shared object")
    assert refused() == f"onnxruntime cannot load {library}: cannot open shared object"


def test_without_a_compiler_a_library_may_be_named(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = present(monkeypatch)
    monkeypatch.setenv("GPUTUNE_CC", "none")
    monkeypatch.delenv("GPUTUNE_ONNXRUNTIME_LIBRARY")
    line = refused()
    assert "cannot be built: GPUTUNE_CC is 'none'; or name a library" in line
    assert line.endswith("built elsewhere by GPUTUNE_ONNXRUNTIME_LIBRARY")
    monkeypatch.setenv("GPUTUNE_ONNXRUNTIME_LIBRARY", str(library))
    plugin.register()
    assert made.registered


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.unlink(), "cannot be used: No such file or directory"),
        (lambda path: path.chmod(0o666), "can be written by every user; change that"),
    ],
    ids=["missing", "untrusted"],
)
def test_a_named_library_must_be_there_and_safe(
    library: Path, monkeypatch: pytest.MonkeyPatch, change: object, words: str
) -> None:
    present(monkeypatch)
    assert callable(change)
    change(library)
    assert refused().startswith(f"GPUTUNE_ONNXRUNTIME_LIBRARY: {library} ")
    assert words in refused()


def test_drivers_are_loaded_as_python_loads_them(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that this process starts later choose for themselves what drivers read, such as a folder of theirs."""
    made = present(monkeypatch)
    found = {"GPUTUNE_OPENCL_LIBRARY": "/pyopencl/.libs/libOpenCL.so", "PYOPENCL_HOME": "/pyopencl"}
    monkeypatch.setattr(plugin, "opencl_library", lambda: found)
    monkeypatch.setattr(plugin, "scratch_environment", lambda names, compiled: {names.folder: "/dev/shm/mine"})
    for name in (*found, "POCL_AFFINITY", "POCL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    plugin.register()
    assert (made.variables["POCL_AFFINITY"], made.variables["POCL_CACHE_DIR"]) == ("1", "/dev/shm/mine")
    assert found.items() <= os.environ.items()
    assert os.environ.keys().isdisjoint(("POCL_AFFINITY", "POCL_CACHE_DIR"))


def test_variables_that_are_set_stay(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    present(monkeypatch)
    named = {"GPUTUNE_OPENCL_LIBRARY": "/mine.so", "POCL_AFFINITY": "0", "PYOPENCL_HOME": "/there"}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    plugin.register()
    assert named.items() <= os.environ.items()


@pytest.mark.parametrize(("spins", "said"), [(True, "1"), (False, "0")])
def test_a_session_runs_our_nodes_on_our_device(
    library: Path, monkeypatch: pytest.MonkeyPatch, spins: bool, said: str
) -> None:
    """It logs errors only, and its threads spin unless they would take the device its processors."""
    present(monkeypatch)
    plugin.register()
    session = plugin.open_session(Path("a.onnx"), {"device": "0"}, spins)
    assert session.path == "a.onnx" and session.options.log_severity_level == 3
    devices, options = session.options.provider
    assert [device.ep_name for device in devices] == [plugin.ep_name()] and options == {"device": "0"}
    assert session.options.entries["session.intra_op.allow_spinning"] == said
    assert session.options.entries["session.x64quantprecision"] == "1"


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        (
            "[ONNXRuntimeError] : 1 : FAIL : gputune: wrong_device: of\n another driver",
            WrongDevice,
            "of another driver",
        ),
        ("gputune: malformed_ep_context: EPContext node 'a': b", MalformedEpContext, "EPContext node 'a': b"),
        ("gputune: untrusted_file: a.bin can be", UntrustedFile, "a.bin can be"),
        ("gputune: device_not_found: none", DeviceNotFound, "none"),
        ("gputune: build_failed: line 1", BuildFailed, "line 1"),
        ("gputune: limit_exceeded: 3 of 2", LimitExceeded, "3 of 2"),
        ("gputune: launch_failed: lost", LaunchFailed, "lost"),
        ("gputune: invalid_argument: bust", ValueError, "bust"),
        ("gputune: io_error: no more space", OSError, "no more space"),
        ("gputune: unknown_graph: no b", UnknownGraph, "no b"),
        ("Nag is no\n operator", PluginError, "onnxruntime cannot run it: Nag is no operator"),
    ],
)
def test_errors_of_a_session_are_ours(
    library: Path, monkeypatch: pytest.MonkeyPatch, refusal: str, kind: type[Exception], words: str
) -> None:
    """By the names that the library has for them."""
    present(monkeypatch, refusal=refusal)
    with pytest.raises(kind) as error:
        plugin.open_session(Path("a.onnx"), {}, spins=True)
    assert type(error.value) is kind and str(error.value) == f"a.onnx: {words}"
