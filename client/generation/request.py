"""Represent the request for a generation, and the part of it that the context keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gputune.cache import with_companions
from gputune.client.errors import CacheMiss
from gputune.client.generation.cache_secret import secret_file
from gputune.client.generation.config import HOST, Config
from gputune.client.generation.config.precision import DOUBLE, IO_TYPE, KEEP, QUANTISED
from gputune.client.generation.ep_context import EpContextFile
from gputune.client.generation.phases import Profiling
from gputune.client.input_lists import files_named
from gputune.client.memory_types import OPTION, RAW, MemoryTypes
from gputune.client.model.chosen_outputs import ChosenOutputs
from gputune.client.model.graph import kind_of
from gputune.client.model.importer import data_files, told_value
from gputune.client.model.model_files import ModelFile
from gputune.client.model.op_packages import OpPackage, folders_files
from gputune.client.model.plan import Plan
from gputune.client.outputs import Files
from gputune.client.target.connecting import AdbRequest
from gputune.client.target.transport.credentials import NONE, Credentials
from gputune.client.tuning.search.effort import Effort
from gputune.client.tuning.search.options import TuningOptions
from gputune.core.files import open_file
from gputune.core.tier import SUFFIX
from gputune.runtime.devices.discovery import replayed_files
from gputune.runtime.power.profiles.perf_profile import PerfProfile


@dataclass(frozen=True)
class GenerationRequest:
    """Everything that a generation depends on.

    The context has a graph for each of the models and each choice of its inputs' shapes. With `verify` it is compared
    with onnxruntime on the inputs of `input_list`, else on random ones. `ep_context` is written beside it.
    outputs: tensors that are outputs beside the model's own. memory_types: what an application is going to give for
    inputs and outputs. profiling: where the time of the generation is recorded, None for not at all; with it a
    schematic is written beside the context. perf_profile: for which clocks and power the targets ask meanwhile.
    temporary: the context is gone before the command ends, so that nothing is said of its file.
    """

    models: Sequence[ModelFile]
    binary_file: Path
    config: Config
    effort: Effort
    performance_cache_dir: Path
    target: str | None = None
    device: str | None = None
    device_tier: str | None = None
    outputs: ChosenOutputs = field(default_factory=ChosenOutputs)
    credentials: Credentials = NONE
    adb: AdbRequest | None = None
    tuning: TuningOptions = field(default_factory=TuningOptions)
    summary_json: Path | None = None
    ep_context: EpContextFile | None = None
    memory_types: MemoryTypes = RAW
    profiling: Profiling | None = None
    op_packages: Sequence[str] = ()
    perf_profile: PerfProfile | None = None
    verify: bool = False
    input_list: Path | None = None
    log_level: str = "info"
    temporary: bool = False

    def fingerprint(self, tier: str, packages: Sequence[OpPackage]) -> str:
        """Return what makes a rerun the same generation: the models' bytes, the effort, the dimensions and values of
        inputs, the states, the precision. tier: the name of the device's."""
        shapes = [sorted(one.items()) for file in self.models for one in file.shapes]
        values = [sorted(file.values.items()) for file in self.models]
        asked: list[object] = [self.effort.name, shapes, values, tier]
        asked += [[one.title for one in packages], str(self.outputs), str(self.config.precision)]
        asked += [asdict(file.state) for file in self.models if file.state is not None]
        digest = hashlib.sha256(json.dumps(asked).encode())
        for model in self.model_paths:
            with open_file(model) as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()

    @property
    def model_paths(self) -> list[Path]:
        """The models' files."""
        return [model.path for model in self.models]

    @property
    def keeps_measurements(self) -> bool:
        """Return whether a performance cache is used."""
        return self.effort.name != "none" and self.tuning.cache_mode != "off"

    @property
    def paths_of_graphs(self) -> list[Path]:
        """The model of each graph."""
        return [model.path for model in self.models for _ in model.shapes]

    @property
    def schematic_file(self) -> Path:
        """Beside the context binary, where a schematic is asked for."""
        return self.binary_file.with_name(f"{self.binary_file.stem}_schematic.bin")


def tell_files(request: GenerationRequest, files: Files) -> None:
    """Tell what a generation reads and writes, as far as it is known before the device. Raises Overwrites."""
    tell_inputs(request, files)
    files.write(request.binary_file, "--binary_file")
    if request.summary_json is not None:
        files.write(request.summary_json, "--summary_json")
    if request.tuning.report is not None:
        files.write(request.tuning.report, "--report")
    if request.ep_context is not None:
        files.write(request.ep_context.path, "--ep_context")
    if request.profiling is not None:
        files.write(request.schematic_file, "--profiling_level")
        files.write(request.profiling.log_file, "--profiling_level")


def tell_inputs(request: GenerationRequest, files: Files) -> None:
    """Tell what a generation reads: files, those that they name, and the caches that it changes. Raises Overwrites."""
    for path in request.model_paths:
        files.read(path, "--model")
        for inner in data_files(path):
            files.read(inner, "weights of --model,")
    if request.input_list is not None:
        files.read(request.input_list, "--input_list")
        for inner in files_named(request.input_list):
            files.read(inner, "a file of --input_list,")
    for inner in replayed_files(request.device):
        files.read(inner, "--device")
    for inner in folders_files(request.op_packages):
        files.read(inner, "a file of --op_packages,")
    files.read(secret_file(), "the secret of performance caches,")
    config = request.config
    folders = {"--performance_cache_dir": request.performance_cache_dir if request.keeps_measurements else None}
    folders |= {
        "kernel_repo_path": config.kernel_repo_path,
        "system_performance_cache_dir": config.system_performance_cache_dir,
    }
    for name, folder in folders.items():
        for cache in [] if folder is None else folder.glob(f"*{SUFFIX}"):
            tell_cache(cache, files, name)


def tell_cache(cache: Path, files: Files, name: str) -> None:
    """Tell a performance cache, which is changed in place. Raises Overwrites."""
    for path in with_companions(cache):
        files.change(path, name)


def effective_configuration(request: GenerationRequest, plans: Sequence[Plan]) -> dict[str, Any]:
    """Return what options, config file and defaults come to, as JSON values, for every key of a config file that
    decides what a context holds. plans: of the graphs that it holds. Targets and reports, which are names of
    machines and of other files, are left out, and so is how long to wait for quiet and how much gain is enough."""
    config, tuning = request.config, request.tuning
    said: dict[str, Any] = (
        {"weights": config.weights} if config.compact else {}
    )  # other contexts are as before there were such keys
    said |= {"unsupported": config.unsupported} if config.unsupported == HOST else {}
    said |= {IO_TYPE: dict(config.precision.io_types)} if config.precision.io_types else {}
    said |= {KEEP: list(config.precision.kept)} if config.precision.kept else {}
    said |= {DOUBLE: config.precision.float64} if config.precision.narrow else {}
    told = {one.name: one.exactness.told([each.name for each in one.outputs]) for one in plans if one.exactness}
    said |= {QUANTISED: kind_of(told.values()), f"{QUANTISED}_graphs": told} if told else {}
    return said | {
        "tuning_mode": request.effort.name != "none",
        "tuning_effort": request.effort.name,
        "tuning_strategy": tuning.strategy,
        "tuning_budget_seconds": tuning.budget_seconds,
        "compare_seconds": tuning.compare_seconds,
        "compare_again": tuning.compare_again,
        "tasks": list(tuning.only),
        "pins": {pattern: dict(pinned) for pattern, pinned in tuning.pins.items()},
        "cold": tuning.cold,
        "cache_mode": tuning.cache_mode,
        "performance_cache_dir": str(request.performance_cache_dir),
        "invalidate_performance_cache": config.invalidate_performance_cache,
        "system_performance_cache_dir": _said(config.system_performance_cache_dir),
        "kernel_repo_path": _said(config.kernel_repo_path),
        "invalidate_kernel_repo": config.invalidate_kernel_repo,
        "context_priority": config.context_priority,
        "enable_graphs": list(config.enable_graphs),
        "persistent_kernels": all(config.settings_of(one.name).persistent_kernels for one in plans),
        "graphs": {one.name: asdict(config.settings_of(one.name)) for one in plans},
        "argument_form": config.argument_form,
        "memory_search_steps": config.memory_search_steps,
        "memory_limit_hint": config.memory_limit_hint,
        "enable_spill_fill_buffer": config.enable_spill_fill_buffer,
        OPTION: str(request.memory_types),
        "models": [model.name for model in request.model_paths],
        "input_dimensions": [
            {name: list(shape) for name, shape in shapes.items()} for model in request.models for shapes in model.shapes
        ],
        "input_values": [
            {name: told_value(value) for name, value in model.values.items()}
            for model in request.models
            for _ in model.shapes
        ],
        "outputs": str(request.outputs),
        "perf_profile": None if request.perf_profile is None else request.perf_profile.name,
    }


def _said(path: Path | None) -> str | None:
    return None if path is None else str(path)


def no_frozen_cache(why: str) -> CacheMiss:
    """Say that there is no cache, and how to get one."""
    return CacheMiss(
        f"the performance cache is frozen, and {why}: tune with another cache_mode first, copy a cache there, or "
        "import an export with `gputune performance-cache import`"
    )
