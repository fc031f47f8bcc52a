"""Test that the bundle, with its worker and its probes, runs with only numpy and pyopencl."""

import io
import json
import os
import re
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import build_target
from gputune.client.target.adb.bundle import bundle_bytes, write_bundle
from gputune.client.target.client import TargetClient
from gputune.runtime.native.building import PARTS, REMEDY_OF_BUNDLES
from tests.devices import device
from tests.opencl.server.test_contexts_in_c import doubled, doubling_context
from tests.opencl.server.test_requests import measuring_request, variant

from .bare import LACKS, bare_python, driver_settings

Serve = Callable[..., TargetClient]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundle") / "gputune-target-server.pyz")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare_python(tmp_path_factory.mktemp("bare"))


@pytest.fixture
def serve(python: Path, bundle: Path) -> Iterator[Serve]:
    """Starts the bundle, from another folder and without this process's environment, and connects to it."""
    processes: list[subprocess.Popen[str]] = []

    def serve(*options: str, **environment: str) -> TargetClient:
        process = subprocess.Popen(
            [python, bundle.name, "--port", "0", *options],
            cwd=bundle.parent,
            env={"PATH": "/usr/bin:/bin", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if match := re.match(r"gputune target server listening on 127.0.0.1:(\d+) ", line):
                return TargetClient.connect("127.0.0.1", int(match[1]))
        raise AssertionError("".join(said))

    yield serve
    for process in processes:
        process.terminate()
        process.communicate(timeout=20)


def test_the_bare_python_is_bare(python: Path) -> None:
    program = f"import importlib.util, json; print(json.dumps([bool(importlib.util.find_spec(n)) for n in {LACKS}]))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    assert json.loads(done.stdout) == [False] * len(LACKS)


def test_it_holds_what_a_device_needs_and_no_more() -> None:
    content = bundle_bytes()
    assert content == bundle_bytes()
    assert content.startswith(b"#!/usr/bin/env python3\nPK")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
    tops = {"/".join(name.split("/")[:2]) for name in names if name.startswith("gputune/")}
    modules = {f"gputune/{name}.py" for name in ("__init__", "__main__", "onnxruntime")}
    assert tops == modules | {"gputune/core", "gputune/runtime", "gputune/server"}
    assert {name.split("/")[0] for name in names} == {
        "__main__.py",
        "gputune",
        "msgpack",
        f"gputune-{version('gputune')}.dist-info",
        f"msgpack-{version('msgpack')}.dist-info",
    }
    native = {f"gputune/runtime/native/{name}" for name in PARTS["runtime"].files()}
    others = {name for name in names if not name.endswith((".py", "METADATA")) and "/licenses/" not in name}
    assert others == native


def test_its_native_part_is_built_from_the_same_sources(python: Path, bundle: Path, tmp_path: Path) -> None:
    """Once, into the cache of the device's user."""
    program = (
        "from gputune.runtime.native.building import PARTS, native_part\n"
        "print(PARTS['runtime'].digest(PARTS['runtime'].files()), native_part('runtime'))"
    )
    environment = {"PYTHONPATH": str(bundle), "PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path)}
    tmp_path.chmod(0o700)
    done = subprocess.run([python, "-c", program], env=environment, capture_output=True, text=True, cwd="/")
    digest, library = done.stdout.split()
    assert digest == PARTS["runtime"].digest(PARTS["runtime"].files())
    assert Path(library).parent == tmp_path / "gputune" / "native"


def test_the_script_says_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "server.pyz"
    monkeypatch.setattr(sys, "argv", ["build-target", "--output", str(path)])
    build_target.main()
    assert path.read_bytes() == bundle_bytes()
    assert path.stat().st_mode & 0o111
    assert capsys.readouterr().out.startswith(f"{path}: {path.stat().st_size} bytes, SHA-256 ")


@pytest.mark.slow
def test_a_server_from_the_bundle_measures_on_the_null_device(serve: Serve) -> None:
    with serve("--device", "null") as client:
        assert client.server["software"] == f"gputune {version('gputune')}"
        assert client.server["backend"] == "null"
        measured = client.measure_kernel(measuring_request(client, variant(), variant(local=128)))
        assert [trial.status for trial in measured.trials] == ["ok", "ok"]


@pytest.mark.opencl
@pytest.mark.night
def test_a_server_from_the_bundle_measures_on_a_device(serve: Serve) -> None:
    with serve(**driver_settings()) as client:
        assert client.server["backend"] == "opencl"
        measured = client.measure_kernel(measuring_request(client, variant(), variant("-DFACTOR=2")))
        assert [trial.status for trial in measured.trials] == ["ok", "correctness"]
        assert measured.binary
        data = np.arange(7, dtype=np.float32)
        assert bytes(client.download(client.upload(data))) == data.tobytes()


@pytest.mark.opencl
@pytest.mark.night
def test_a_server_from_the_bundle_without_a_compiler_names_the_agent(serve: Serve) -> None:
    with serve(**driver_settings(), GPUTUNE_CC="none") as client:
        assert client.why_no_contexts == f"the C runtime is not here: GPUTUNE_CC is 'none'; {REMEDY_OF_BUNDLES}"
        assert "gputune's agent" in REMEDY_OF_BUNDLES


@pytest.mark.opencl
@pytest.mark.night
def test_a_server_from_the_bundle_compiles_the_c_runtime(serve: Serve, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with serve(**driver_settings(), XDG_CACHE_HOME=str(tmp_path)) as client:
        assert client.why_no_contexts == ""
        assert len(list((tmp_path / "gputune" / "native").glob("runtime-*.so"))) == 1
        assert doubled(client, client.load_context(doubling_context(device(), tmp_path)).context)


def test_without_numpy_it_says_so_in_one_line(python: Path, bundle: Path) -> None:
    done = subprocess.run([python, "-S", "-E", bundle], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == ("error: numpy cannot be loaded: No module named 'numpy'; install numpy and pyopencl\n")


def test_an_old_python_is_told_so(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 8, 1))
    with pytest.raises(SystemExit, match=r"Python 3.11 or newer is needed, and this is 3.8$"):
        runpy.run_path(str(bundle), run_name="__main__")
