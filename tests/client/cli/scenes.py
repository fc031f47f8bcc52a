"""Call every command that writes files once, on small inputs of all kinds, in its own folder."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from gputune.cache import PerformanceCache
from gputune.cache.exchange import to_json
from gputune.client.cli.farm import look
from gputune.client.compare import comparing
from gputune.client.generation.ep_context import EpContextFile
from gputune.client.run.packages import combine
from gputune.client.run.throughput import running
from gputune.client.viewer.schematic import write_schematic
from gputune.runtime.native import building
from tests.cache.conftest import TASK, VALIDITY, trial
from tests.client import models
from tests.client.contexts import DEVICE, small_context
from tests.client.viewer.made_up_profiles import NAMES, schematic_of
from tests.runtime.profiling import made_up

PACKAGE = Path(__file__).parents[2] / "op_package_example"
COMPUTING = {**DEVICE, "name": "A GPU", "platform": "x", "driver_version": "7.1"}


@dataclass(frozen=True)
class Scene:
    """A command. make: writes its inputs into the current folder; arguments: words of the command; prepare: makes what
    it needs small; late: outputs are known when processes have started, which takes a second: it is for the night."""

    command: str
    arguments: tuple[str, ...]
    make: Callable[[], None]
    prepare: Callable[[pytest.MonkeyPatch], None] = lambda monkeypatch: None
    late: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.command.split(), *self.arguments)


def external_model(name: str = "net") -> None:
    """NAME.onnx, whose weights are in NAME.data."""
    model = models.build("(float[2, 4] x) => (float[2, 4] y)", "y = Add(x, w)", {"w": (2, 4)})
    onnx.save(model, f"{name}.onnx", save_as_external_data=True, location=f"{name}.data", size_threshold=0)


def inputs() -> None:
    np.zeros((2, 4), np.float32).tofile("x.raw")
    np.save("x.npy", np.zeros((2, 4), np.float32))
    Path("list.txt").write_text("# inputs\nx:=x.raw\nx:=x.npy\n")


def cache(*folders: str) -> None:
    """A performance cache of the null device in each folder."""
    for folder in folders:
        with PerformanceCache.open(Path(folder) / "null-cu1.sqlite"):
            pass


def generation() -> None:
    external_model()
    inputs()
    cache("cache", "system", "programs")
    shutil.copytree(PACKAGE, "package", ignore=shutil.ignore_patterns("__pycache__"))
    config = {
        "tuning_mode": True,
        "performance_cache_dir": "cache",
        "system_performance_cache_dir": "system",
        "kernel_repo_path": "programs",
    }
    Path("config.json").write_text(json.dumps(config))


def runs() -> None:
    small_context(Path("a.bin"))
    EpContextFile(Path("a.onnx"), False).write(Path("a.bin"))
    small_context(Path("b.bin"))
    inputs()
    Path("config.json").write_text(json.dumps({"profile_configs": {"num_max_events": 100}}))


def throughput() -> None:
    runs()
    contexts = [{"path": "a.onnx", "input_list": "list.txt"}, {"path": "b.bin", "input_list": "list.txt"}]
    Path("plan.json").write_text(json.dumps({"contexts": contexts, "duration": 0.1, "device": "null"}))


def measurements() -> None:
    cache("cache")
    for place in (Path("cache/a.sqlite"), Path("b.sqlite"), Path("into.sqlite")):
        with PerformanceCache.open(place) as opened:
            opened.store_trials(TASK, VALIDITY, [trial(8), trial(16)])
    with PerformanceCache.open_readonly(Path("b.sqlite")) as opened:
        Path("b.json").write_text(to_json(opened.contents(), "0.1", "now"))
    small_context(Path("a.bin"))


def package() -> None:
    packages()
    combine(Path("all.gtpkg"), [Path("one.bin"), Path("two.bin")])
    for name in ("one", "two"):
        Path(f"{name}.bin").unlink()


def comparison() -> None:
    external_model()
    small_context(Path("tuned.bin"), shape=(2, 4))


def packages() -> None:
    for name in ("one", "two", "three"):
        small_context(Path(f"{name}.bin"), device={**COMPUTING, "name": name})


def profiles() -> None:
    graph = made_up.graph(NAMES)
    for name in ("a.log", "b.log"):
        made_up.write_log(Path(name), [graph], made_up.inferences(3, [40_000, 7_000, 90_000, 1_000]))
    write_schematic(Path("net_schematic.bin"), schematic_of(graph))
    Path("on.json").write_text(json.dumps({"features": {"qhas_json": True, "qhas_schema": True}}))


def computing() -> None:
    small_context(Path("a.bin"), device=COMPUTING)
    EpContextFile(Path("a.onnx"), False).write(Path("a.bin"))


class NoFarm:
    """A scheduler without devices."""

    def __init__(self, place: object) -> None: ...
    def close(self) -> None: ...
    def devices(self) -> Mapping[str, object]:
        return {}


def farm() -> None:
    Path("farm").mkdir(mode=0o700)
    for name in ("authority.pem", "authority.key", "member.pem", "member.key"):
        Path("farm", name).write_text("a certificate")


def farm_job() -> None:
    farm()
    Path("models").mkdir()
    for name in ("one", "two"):
        external_model(name)
        Path(f"{name}.onnx").rename(f"models/{name}.onnx")
        Path(f"{name}.data").rename(f"models/{name}.data")
    Path("config.json").write_text(json.dumps({"memory_search_steps": 1}))


SCENES = {
    "generator": Scene(
        "context-binary-generator",
        ("--model", "net.onnx", "--binary_file", "net", "--output_dir", "out", "--config_file", "config.json",
         "--op_packages", "package", "--tuning_effort", "quick", "--device", "null", "--summary_json", "s.json",
         "--report", "r.html", "--ep_context", "out/ep.onnx", "--profiling_level", "qhas"),
        generation,
    ),
    "net-run": Scene(
        "net-run",
        ("--retrieve_context", "a.onnx", "--input_list", "list.txt", "--device", "null", "--output_dir", "out", "--npy",
         "--config_file", "config.json", "--profile", "p.json", "--summary_json", "s.json", "--export_times", "t.csv"),
        runs,
    ),
    "net-run of two contexts": Scene(
        "net-run",
        ("--retrieve_context", "a.bin,b.bin", "--input_list", "list.txt,list.txt", "--device", "null", "--output_dir",
         "."),
        runs,
    ),
    "throughput": Scene(
        "throughput-net-run",
        ("--config_file", "plan.json", "--summary_json", "s.json", "--export_times", "t.csv"),
        throughput,
        prepare=lambda monkeypatch: monkeypatch.setattr(running, "TICK_S", 0.02),
    ),
    "compare": Scene(
        "compare",
        ("--model", "net.onnx", "--retrieve_context", "tuned.bin", "--device", "null", "--compare_seconds", "0.1",
         "--summary_json", "s.json", "--chart", "c.svg"),
        comparison,
        late=True,
        prepare=lambda monkeypatch: monkeypatch.setattr(comparing, "TURN_S", 0.001),
    ),
    "utility": Scene("context-binary-utility", ("--context_binary", "a.onnx,b.bin", "--json_file", "h.json"), runs),
    "package": Scene("package", ("one.bin", "two.bin", "--add", "three.bin", "--output", "all.gtpkg"), packages),
    "package --split": Scene("package", ("all.gtpkg", "--split", "--output_dir", "apart"), package),
    "tuning-report": Scene(
        "tuning-report",
        ("--performance_cache_dir", "cache/a.sqlite", "--context_binary", "a.bin", "--output", "t.html"),
        measurements,
    ),
    "cache export": Scene(
        "performance-cache export", ("a", "--performance_cache_dir", "cache", "--output", "a.json"), measurements
    ),
    "cache export as T4": Scene(
        "performance-cache export",
        ("a", "--performance_cache_dir", "cache", "--format", "t4", "--output", "t4"),
        measurements,
    ),
    "cache import": Scene("performance-cache import", ("b.json", "--performance_cache_dir", "new"), measurements),
    "cache merge": Scene(
        "performance-cache merge",
        ("a", "b.sqlite", "--performance_cache_dir", "cache", "--into", "into.sqlite"),
        measurements,
    ),
    "onnxruntime build": Scene(
        "onnxruntime build",
        ("--output", "libgputune_onnxruntime.so"),
        lambda: None,
        prepare=lambda monkeypatch: monkeypatch.setattr(building, "native_part", lambda name: Path(sys.executable)),
    ),
    "export": Scene("export", ("--context_binary", "a.onnx", "--output_dir", "app"), computing),
    "memory-report": Scene("memory-report", ("--context_binary", "a.bin", "--output", "m.html"), runs),
    "profile-viewer": Scene(
        "profile-viewer",
        ("--input_log", "a.log", "--schematic", "net_schematic.bin", "--config", "on.json", "--compare", "b.log",
         "--output", "chrometrace.json"),
        profiles,
    ),
    "farm status": Scene(
        "farm status",
        ("--farm_dir", "farm", "--html", "farm.html"),
        farm,
        prepare=lambda monkeypatch: monkeypatch.setattr(look, "DaskEngine", NoFarm),
    ),
    "farm tune": Scene(
        "farm tune",
        ("--models", "models", "--device", "null", "--tuning_effort", "none", "--output_dir", "out", "--config_file",
         "config.json", "--farm_dir", "farm"),
        farm_job,
        late=True,
    ),
}  # fmt: skip
