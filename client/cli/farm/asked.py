"""Represent a job of `gputune farm tune`: read it from the command line, keep it in the journal, and derive its
generations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError, ModelError
from gputune.client.farm.engine import FarmError
from gputune.client.generation.request import GenerationRequest, requested, tell_inputs
from gputune.client.lists import comma_separated, parts_outside_quotes
from gputune.client.model.importer import Value
from gputune.client.model.model_files import ModelFile, Shape, model_files
from gputune.client.options.command_line import given_of
from gputune.client.options.config import Config, read_config
from gputune.client.options.farm import WISHES
from gputune.client.options.generator import MEMORY, OUTPUTS
from gputune.client.options.power import asked_profile
from gputune.client.outputs import Files
from gputune.runtime.context.package import SUFFIX
from gputune.runtime.power.profiles.perf_profile import PerfProfile

_NOT_OF_A_JOB = {
    "target": "the devices are those of --scheduler or --device",
    "invalidate_performance_cache": "each model would empty the cache of the model before it; use --cache_mode refresh",
    "invalidate_kernel_repo": "each model would empty the repository of the model before it; empty the folder yourself",
}
"""Keys of a config file that would not do here what they say, and why."""


@dataclass(frozen=True)
class Asked:
    """Represent a job: paths are absolute, and all values are plain, since they are kept as JSON.

    Of set_output_tensors (its lists), memory_types (its words) and config_files a value MODEL:VALUE is for one model.
    perf_profile: as PerfProfile.to_dict gives it; wishes: options of tuning, by their names.
    """

    models: tuple[str, ...]
    tiers: tuple[str, ...]
    count: int | None
    tuning_effort: str | None
    output_dir: str
    performance_cache_dir: str | None
    config_files: tuple[str, ...] = ()
    input_dimensions: tuple[tuple[str, Shape], ...] = ()
    input_values: Mapping[str, Value] = field(default_factory=dict)
    enable_intermediate_outputs: bool = False
    set_output_tensors: tuple[str, ...] = ()
    memory_types: tuple[str, ...] = ()
    op_packages: tuple[str, ...] = ()
    perf_profile: Mapping[str, Any] | None = None
    wishes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Asked | None:
        """Return what options ask for, given by their names; None where no model is named. Raises ModelError,
        ConfigError."""
        given = given_of(values)
        if "models" not in given:
            return None
        found = found_models(given["models"])
        stems = [path.stem for path in found]
        cache, profile = given.get("performance_cache_dir"), asked_profile(given)
        return cls(
            models=tuple(map(str, found)),
            tiers=tuple(part.strip() for part in given["tiers"].split(",") if part.strip()),
            count=given.get("count"),
            tuning_effort=given.get("tuning_effort"),
            output_dir=str(given["output_dir"].resolve()),
            performance_cache_dir=None if cache is None else str(cache.resolve()),
            config_files=tuple(absolute(file, stems) for file in given.get("config_file", ())),
            input_dimensions=given.get("input_dimensions", ()),
            input_values=given.get("input_value", {}),
            enable_intermediate_outputs=given.get("enable_intermediate_outputs", False),
            set_output_tensors=tuple(parts_outside_quotes(given[OUTPUTS.name], ";")) if OUTPUTS.name in given else (),
            memory_types=tuple(given[MEMORY.name].split(",")),
            op_packages=tuple(map(absolute, given.get("op_packages", ()))),
            perf_profile=None if profile is None else profile.to_dict(),
            wishes={one.name: given[one.name] for one in WISHES if one.name in given},
        )

    @classmethod
    def read(cls, plain: Mapping[str, object]) -> Asked:
        """Return what the journal has. Raises FarmError for what this version has not written."""
        try:
            found = cls(**{**_tuples(plain), "perf_profile": plain["perf_profile"]})
            found.requests()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FarmError(f"what the job asked for cannot be read ({error}); begin a new one") from None
        return found

    def to_dict(self) -> dict[str, object]:
        """Return it as `read` takes it."""
        return asdict(self)

    @property
    def stems(self) -> list[str]:
        """Return what the models are called."""
        return [Path(model).stem for model in self.models]

    def package(self, model: Path) -> Path:
        """Return where the package of a model is written."""
        return Path(self.output_dir) / f"{model.stem}{SUFFIX}"

    def context(self, model: Path, tier: str) -> Path:
        """Return where the context of a model for a tier is written."""
        return Path(self.output_dir) / f"{model.stem}.{tier.replace('/', '-')}.bin"

    def requests(self) -> dict[Path, GenerationRequest]:
        """Return what is generated of each model on any tier. Raises ConfigError for options that contradict each other
        or a config file, ModelError."""
        files = model_files([Path(model) for model in self.models], self.input_dimensions, self.input_values)
        return {file.path: self._request(file) for file in files}

    def tell_files(self, files: Files, tiers: Sequence[str] = ()) -> None:
        """Tell what the job reads, and what it writes on devices of these tiers. Raises Overwrites, and as `requests`
        does."""
        for model, request in self.requests().items():
            tell_inputs(request, files)
            for config in self._own(self.config_files, model.stem):
                files.read(Path(config), "--config_file")
        for model in map(Path, self.models):
            files.write(self.package(model), "the package in --output_dir,")
            for tier in tiers:
                files.write(self.context(model, tier), f"the context for tier {tier} in --output_dir,")

    def _request(self, file: ModelFile) -> GenerationRequest:
        stem = file.path.stem
        config = self._config(stem)
        lists = ";".join(self._own(self.set_output_tensors, stem))
        given: dict[str, Any] = {"model": [file.path], "op_packages": self.op_packages, **self.wishes}
        given |= {"tuning_effort": self.tuning_effort} if self.tuning_effort else {}
        given |= {"enable_intermediate_outputs": True} if self.enable_intermediate_outputs else {}
        given |= {"set_output_tensors": lists} if lists else {}
        given |= {"performance_cache_dir": Path(self.performance_cache_dir)} if self.performance_cache_dir else {}
        given |= (
            {"input_output_tensor_mem_type": types} if (types := ",".join(self._own(self.memory_types, stem))) else {}
        )
        profile = None if self.perf_profile is None else PerfProfile.from_dict(dict(self.perf_profile))
        request = requested(given, self.package(file.path), config, perf_profile=profile)
        (own,) = request.models
        return replace(request, models=[replace(own, shapes=file.shapes, values={**own.values, **file.values})])

    def _config(self, stem: str) -> Config:
        """Return the config file of a model."""
        files = list(self._own(self.config_files, stem))
        if len(files) > 1:
            raise ConfigError(f"--config_file: {' and '.join(files)} are both for model {stem!r}; keep one of them")
        config = read_config(Path(files[0]) if files else None)
        for key, why in _NOT_OF_A_JOB.items():
            if getattr(config, key):
                raise ConfigError(f"config file {files[0]}: {key} is not for a job on a farm: {why}")
        if config.tuning.report is not None:
            raise ConfigError(
                f"config file {files[0]}: a report is about one context; make it later with `gputune tuning-report`"
            )
        return config

    def _own(self, values: Sequence[str], stem: str) -> Iterator[str]:
        """Yield those of the values that are for a model, without its name."""
        for value in values:
            owner = max((each for each in self.stems if value.startswith(f"{each}:")), key=len, default=None)
            if owner in (None, stem):
                yield value if owner is None else value.removeprefix(f"{stem}:")


def found_models(given: Sequence[str]) -> list[Path]:
    """Return the files that are named, and those in folders. Raises ModelError, ConfigError."""
    found: list[Path] = []
    for path in (path for value in given for path in _paths(value)):
        inside = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
        if not inside or not all(one.is_file() for one in inside):
            raise ModelError(f"there is no ONNX model at {path}")
        found += [one.resolve() for one in inside]
    stems = [path.stem for path in found]
    if twice := {stem for stem in stems if stems.count(stem) > 1}:
        raise ConfigError(f"two models are called {', '.join(sorted(twice))}; their contexts would be one file")
    return found


def _paths(text: str) -> list[Path]:
    """Return the paths of one --models: a path that is there as a whole, commas or not, else those between commas."""
    if Path(text).exists():
        return [Path(text)]
    try:
        return [Path(part.strip()) for part in comma_separated(text) if part.strip()]
    except ValueError as error:
        raise ConfigError(f"--models: {error}") from None


def _tuples(value: object) -> Any:
    """Return JSON's lists as tuples."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {name: _tuples(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def absolute(value: str, stems: Sequence[str] = ()) -> str:
    """Return a path from this folder, or what is no path of it, as it is; MODEL: in front of it stays there."""
    owner = max((f"{stem}:" for stem in stems if value.startswith(f"{stem}:")), key=len, default="")
    path = Path(value.removeprefix(owner)).expanduser()
    return f"{owner}{path.resolve()}" if path.exists() else value
