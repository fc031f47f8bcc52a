"""Represent the request for a generation: what options make of it, and the part of it that the context keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gputune.cache import with_companions
from gputune.client.errors import CacheMiss, ConfigError
from gputune.client.folders import default_performance_cache_dir
from gputune.client.generation.cache_secret import secret_file
from gputune.client.generation.ep_context import EpContextFile, default_file
from gputune.client.generation.phases import Profiling
from gputune.client.input_lists import files_named
from gputune.client.memory_types import OPTION, RAW, MemoryTypes
from gputune.client.model.chosen_outputs import ChosenOutputs
from gputune.client.model.graph import kind_of
from gputune.client.model.importer import data_files, told_value
from gputune.client.model.model_files import ModelFile, model_files, with_states
from gputune.client.model.op_packages import OpPackage, folders_files
from gputune.client.model.plan import Plan
from gputune.client.options.config import HOST, AskedPrecision, Config, read_config
from gputune.client.options.option import options_of
from gputune.client.options.tuning import MODE, TuningOptions
from gputune.client.outputs import Files
from gputune.client.target.connecting import AdbRequest, asked_connection
from gputune.client.target.transport.credentials import NONE, Credentials
from gputune.client.tuning.search.effort import EFFORTS, Effort
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
        asked += [asdict(state) for file in self.models for state in file.states]
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
        return [model.path for model in self.models for _ in model.graphs]

    @property
    def schematic_file(self) -> Path:
        """Beside the context binary, where a schematic is asked for."""
        return self.binary_file.with_name(f"{self.binary_file.stem}_schematic.bin")


def requested(
    given: Mapping[str, Any], binary_file: Path, config: Config | None = None, **rest: Any
) -> GenerationRequest:
    """Return the generation that options ask for, given by their names; they come before what the config file says.

    config: the file's content, where it is read already; rest: other fields of the request. Raises ConfigError for
    options that contradict each other or the file.
    """
    found = read_config(given.get("config_file")) if config is None else config
    effort = choose_effort(found, given.get("tuning_effort"))
    _check_bound(given, effort)
    connection = asked_connection(given)
    _check_target(given, found)
    asked = found.having(given)
    return GenerationRequest(
        models=with_states(
            model_files(given["model"], given.get("input_dimensions", ()), asked.input_values),
            asked.state,
            asked.state_capacity,
        ),
        outputs=ChosenOutputs.parse(given.get("enable_intermediate_outputs", False), given.get("set_output_tensors")),
        binary_file=binary_file,
        config=asked,
        effort=effort,
        performance_cache_dir=asked.performance_cache_dir or default_performance_cache_dir(),
        target=asked.target,
        device=given.get("device"),
        device_tier=given.get("device_tier"),
        credentials=connection.credentials,
        adb=connection.adb,
        tuning=asked.tuning,
        ep_context=_ep_context(given, asked, binary_file),
        memory_types=MemoryTypes.parse(given.get("input_output_tensor_mem_type", "raw")),
        op_packages=given.get("op_packages", ()),
        verify=given.get("verify", False),
        input_list=given.get("input_list"),
        summary_json=given.get("summary_json"),
        **{"log_level": given.get("log_level", "info"), **rest},
    )


def choose_effort(config: Config, option: str | None) -> Effort:
    """Return the effort that --tuning_effort and tuning_mode agree on. Raises ConfigError when they contradict."""
    if config.tuning_mode is False:
        if option not in (None, "none"):
            raise ConfigError(f'--tuning_effort {option} contradicts "tuning_mode": false in the config file')
        return EFFORTS["none"]
    if config.tuning_mode is True and option == "none":
        raise ConfigError('--tuning_effort none contradicts "tuning_mode": true in the config file')
    return EFFORTS[option or "normal"]


def _check_bound(given: Mapping[str, Any], effort: Effort) -> None:
    """Raise ConfigError for options about tuning where it is off."""
    known = (*options_of(TuningOptions), *options_of(Config))
    about = [one.words for one in known if one.needs == MODE and not one.only_key and one.name in given]
    if about and effort.name == "none":
        raise ConfigError(
            f"{' and '.join(about)}: tuning is off, so this has no effect; drop it, or choose another --tuning_effort"
        )
    if "input_list" in given and "verify" not in given:
        raise ConfigError("--input_list gives the inputs for --verify; give --verify, too")


def _check_target(given: Mapping[str, Any], config: Config) -> None:
    """Raise ConfigError where an option means another server than the config file."""
    if "target" in given or config.target is None:
        return
    for name in ("device", "adb"):
        if name in given:
            raise ConfigError(f"--{name} contradicts the target {config.target} in the config file; drop one of them")


def _ep_context(given: Mapping[str, Any], config: Config, binary_file: Path) -> EpContextFile | None:
    """Return the ONNX file that is asked for, and that models need of which only parts run on the device."""
    path, embed = given.get("ep_context"), given.get("ep_context_embed_mode")
    if path is None and config.unsupported == HOST:
        path = default_file(binary_file)
    if path is None and embed is not None:
        raise ConfigError("--ep_context_embed_mode is for the file that --ep_context writes; give --ep_context, too")
    return None if path is None else EpContextFile(path, embed == "1")


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
    config = request.config
    said = {name: value for record in (config, config.precision, request.tuning) for name, value in _told(record)}
    said |= {"weights": config.weights} if config.compact else {}  # other contexts are as before there was such a key
    told = {one.name: one.exactness.told([each.name for each in one.outputs]) for one in plans if one.exactness}
    said |= {"quantised": kind_of(told.values()), "quantised_graphs": told} if told else {}
    return said | {
        "tuning_mode": request.effort.name != "none",
        "tuning_effort": request.effort.name,
        "performance_cache_dir": str(request.performance_cache_dir),
        "persistent_kernels": all(config.settings_of(one.name).persistent_kernels for one in plans),
        "graphs": {one.name: asdict(config.settings_of(one.name)) for one in plans},
        OPTION: str(request.memory_types),
        "models": [model.name for model in request.model_paths],
        "input_dimensions": [
            {name: list(shape) for name, shape in shapes.items()}
            for model in request.models
            for shapes, _ in model.graphs
        ],
        "input_values": [
            {name: told_value(value) for name, value in model.values.items()}
            for model in request.models
            for _ in model.graphs
        ],
        "outputs": str(request.outputs),
        "perf_profile": None if request.perf_profile is None else request.perf_profile.name,
    }


def told_precision(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options about floats with which a context was generated, by their names. configuration: what the
    context keeps, which may say anything. Raises ConfigError."""
    about = {one.told or one.name: one for one in options_of(AskedPrecision) if one.name != "quantised"}
    return {one.name: one.kind.json(configuration[name], name) for name, one in about.items() if name in configuration}


def _told(record: object) -> Iterator[tuple[str, Any]]:
    """Yield what a record asks for, as JSON values, by the names under which a context keeps it."""
    for one in options_of(type(record)):
        value = getattr(record, one.of)
        if one.told and not (one.sparse and value == getattr(type(record)(), one.of)):
            yield one.told, _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def no_frozen_cache(why: str) -> CacheMiss:
    """Say that there is no cache, and how to get one."""
    return CacheMiss(
        f"the performance cache is frozen, and {why}: tune with another cache_mode first, copy a cache there, or "
        "import an export with `gputune performance-cache import`"
    )
