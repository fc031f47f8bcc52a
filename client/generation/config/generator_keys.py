"""Define the keys of the context binary generator's config file: the keys that tuning-mode users know, and gputune's
own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputune.client.context.memory.arena_search import SEARCH_STEPS
from gputune.client.errors import ConfigError
from gputune.client.generation.config import values
from gputune.client.generation.config.forms import Found, Keys, read_file
from gputune.client.generation.config.precision import (
    DOUBLE,
    DOUBLES,
    IO_TYPE,
    KEEP,
    MODE,
    QUANTISED,
    REFUSE,
    AskedPrecision,
    io_types,
    precision_mode,
    quantised,
)
from gputune.client.model.graph import EXACT
from gputune.client.strict_json import Read, a_flag, a_number, a_path, a_text, one_of
from gputune.client.suggestions import instead
from gputune.client.tuning.measuring.quiet import MOST_MINUTES
from gputune.client.tuning.search.effort import EFFORTS, Effort
from gputune.client.tuning.search.options import TuningOptions, check_cache_mode, check_strategy, parse_budget
from gputune.core.launches import ARGUMENT_FORMS, ArgumentForm

if TYPE_CHECKING:
    from gputune.client.model.importer import Value

COUNT = a_number(0, 10**12)
MEASURED = "measured"
"""The form of arguments that is fastest on the device."""
AUTO = "auto"
WEIGHTS = (AUTO, "packed", "compact")
"""How a context has constants that kernels read in an order of their own: in that order, or as the model has them, to
be packed when the context is loaded."""
HOST = "host"
UNSUPPORTED = (REFUSE, HOST)
"""The fate of nodes that have no kernels: the model is refused, or they stay in onnxruntime on the host."""
PERF_HINTS = "high_performance for 'high', balanced for 'normal', power_saver for 'low'"


def normal_priority(value: object, key: str) -> str:
    """Return the priority that queues have which ask for none. Raises ConfigError for another."""
    if (priority := a_text(value, key)) != "normal":
        raise ConfigError(f"{key}: {priority!r} is not supported: queues have the normal priority; leave it out")
    return priority


_TUNING: dict[str, tuple[str, Read]] = {
    "tasks": ("only", values.tasks),
    "pins": ("pins", values.pins),
    "tuning_budget": ("budget_seconds", lambda value, key: parse_budget(a_text(value, key), key)),
    "compare_seconds": ("compare_seconds", values.seconds),
    "compare_again": ("compare_again", a_flag),
    "tuning_strategy": ("strategy", lambda value, key: check_strategy(a_text(value, key), key)),
    "cold": ("cold", a_flag),
    "cache_mode": ("cache_mode", lambda value, key: check_cache_mode(a_text(value, key), key)),
    "report": ("report", a_path),
    "wait_for_quiet": ("wait_for_quiet", a_number(1, MOST_MINUTES)),
    "fail_under": ("fail_under", values.gain),
}
"""The keys that say what is asked of the tuner, each with its field of TuningOptions."""
_OF_GRAPHS: dict[str, Read] = {
    "persistent_kernels": a_flag,
    "disable_memory_optimizations": a_flag,
    "disable_node_optimizations": a_flag,
    "disable_queue_recording": a_flag,
}
"""The keys that may differ between the graphs of a context."""
SUPPORTED: dict[str, Read] = {
    "tuning_mode": a_flag,
    "performance_cache_dir": a_path,
    "invalidate_performance_cache": a_flag,
    "system_performance_cache_dir": a_path,
    "kernel_repo_path": a_path,
    "invalidate_kernel_repo": a_flag,
    "target": values.addresses,
    MODE: precision_mode,
    IO_TYPE: io_types,
    KEEP: values.names,
    DOUBLE: one_of(*DOUBLES),
    QUANTISED: quantised,
    "memory_search_steps": COUNT,
    "memory_limit_hint": COUNT,
    "weights": one_of(*WEIGHTS),
    "unsupported": one_of(*UNSUPPORTED),
    "input_values": values.input_values,
    "argument_form": one_of(MEASURED, *ARGUMENT_FORMS),
    "enable_spill_fill_buffer": a_flag,
    **_OF_GRAPHS,
    "graph_names": values.names,
    **{key: read for key, (_, read) in _TUNING.items()},
}
NEEDS_TUNING_MODE = (
    "performance_cache_dir",
    "invalidate_performance_cache",
    "system_performance_cache_dir",
    *_TUNING,
)
_LOADING = "it is about loading, but this command makes a context; leave it out here, and give net-run"
KEYS = Keys(
    inner=SUPPORTED,
    context={
        "context_priority": normal_priority,
        "enable_graphs": values.names,
        "memory_limit_hint": COUNT,
    },
    graph={**_OF_GRAPHS, "graph_names": values.names},
    profile={},
    refused={
        "tuning_effort": "the effort is an option, --tuning_effort; leave the key out",
        "perf_hint": f"clocks are an option, --perf_profile NAME: {PERF_HINTS}",
        "cache_compatibility_mode": f"{_LOADING} --cache_compatibility_mode",
        "num_max_events": f"{_LOADING} it in its --config_file",
        "graph_priority": "queues have the normal priority; leave it out",
        "is_persistent_binary": "a context is read from its file part by part, and no copy of it is kept; leave it out",
        "async_execute_queue_depth": "inferences of one context follow one another; leave it out",
    },
)


@dataclass(frozen=True)
class GraphSettings:
    """How a graph is made and run. persistent_kernels: also in fewer launches. queue_recording: launches may run
    as a recorded queue. fusion: operations in one kernel where that is faster. shared_memory: tensors that are never
    alive together share arenas, else each has a place of its own."""

    persistent_kernels: bool = True
    queue_recording: bool = True
    fusion: bool = True
    shared_memory: bool = True


@dataclass(frozen=True)
class GraphKeys:
    """Settings of the graphs that have these names, or of all where there are none."""

    names: tuple[str, ...]
    settings: Mapping[str, bool]


@dataclass(frozen=True)
class Config:
    """What the config file asks for; None where it says nothing. graphs: what comes later goes before."""

    tuning_mode: bool | None = None
    performance_cache_dir: Path | None = None
    invalidate_performance_cache: bool = False
    system_performance_cache_dir: Path | None = None
    kernel_repo_path: Path | None = None
    invalidate_kernel_repo: bool = False
    target: str | None = None
    precision: AskedPrecision = field(default_factory=AskedPrecision)
    context_priority: str = "normal"
    enable_graphs: tuple[str, ...] = ()
    memory_search_steps: int = SEARCH_STEPS
    memory_limit_hint: int = 0
    weights: str = WEIGHTS[0]
    unsupported: str = REFUSE
    input_values: Mapping[str, Value] = field(default_factory=dict)
    argument_form: str = MEASURED
    enable_spill_fill_buffer: bool = False
    graphs: tuple[GraphKeys, ...] = ()
    tuning: TuningOptions = field(default_factory=TuningOptions)

    @property
    def compact(self) -> bool:
        """Return whether the context packs weights when it is loaded."""
        return self.weights == "compact"

    @property
    def form(self) -> ArgumentForm | None:
        """Return the form in which launches are given what lies in arenas; None if it is measured."""
        return next((form for form in ARGUMENT_FORMS if form == self.argument_form), None)

    def having(
        self,
        weights: str | None = None,
        unsupported: str | None = None,
        precision_mode: str | None = None,
        io_type: Mapping[str, str] | None = None,
        keep_float32: Sequence[str] = (),
        float64: str | None = None,
        quantised: str | None = None,
    ) -> Config:
        """Return it with what options say of these keys, unless they say nothing."""
        return replace(
            self,
            weights=weights or self.weights,
            unsupported=unsupported or self.unsupported,
            precision=self.precision.having(precision_mode, io_type, keep_float32, float64, quantised),
        )

    def settings_of(self, graph: str) -> GraphSettings:
        """Return the settings of the graph of this name."""
        found: dict[str, bool] = {}
        for keys in self.graphs:
            if not keys.names or graph in keys.names:
                found.update(keys.settings)
        return GraphSettings(**found)

    def check_graphs(self, graphs: Collection[str]) -> None:
        """Raise ConfigError for a name of a graph that is not among these."""
        named = [("enable_graphs", self.enable_graphs), *(("graph_names", keys.names) for keys in self.graphs)]
        for key, names in named:
            check_graph_names(key, names, graphs)


def check_graph_names(key: str, names: Collection[str], graphs: Collection[str]) -> None:
    """Raise ConfigError with the nearest graph, or all, for a name that none of these has. key: where it stands."""
    for name in names:
        if name not in graphs:
            raise ConfigError(f"{key}: there is no graph {name!r}; {instead(name, graphs, 'the graphs are')}")


def read_config(path: Path | None) -> Config:
    """Return the config file's content, every key checked. Raises ConfigError, and TargetError for a target's address;
    no path means no wishes."""
    if path is None:
        return Config()
    found = read_file(path, KEYS)
    fields = dict(found.keys)
    _check_together(path, found)
    graphs = [GraphKeys((), _settings({key: fields.pop(key) for key in _OF_GRAPHS if key in fields}))]
    graphs += [GraphKeys(each["graph_names"], _settings(each)) for each in found.graphs]
    tuning = {name: fields.pop(key) for key, (name, _) in _TUNING.items() if key in fields}
    precision = AskedPrecision(
        fields.pop(MODE, None),
        fields.pop(IO_TYPE, {}),
        fields.pop(KEEP, ()),
        fields.pop(DOUBLE, REFUSE),
        fields.pop(QUANTISED, EXACT),
    )
    return Config(
        **fields,
        precision=precision,
        graphs=tuple(each for each in graphs if each.settings),
        tuning=TuningOptions(**tuning),
    )


def _settings(keys: Mapping[str, Any]) -> dict[str, bool]:
    """Return the fields of GraphSettings that these keys say."""
    said = {
        "persistent_kernels": keys.get("persistent_kernels"),
        "queue_recording": _negated(keys.get("disable_queue_recording")),
        "fusion": _negated(keys.get("disable_node_optimizations")),
        "shared_memory": _negated(keys.get("disable_memory_optimizations")),
    }
    return {name: value for name, value in said.items() if value is not None}


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _check_together(path: Path, found: Found) -> None:
    """Raise ConfigError for keys that need others, or rule them out."""
    for key in NEEDS_TUNING_MODE:
        if key in found.keys and found.keys.get("tuning_mode") is not True:
            raise ConfigError(f'config file {path}: {key} needs "tuning_mode": true, too')
    if any(each.get("disable_memory_optimizations") for each in (found.keys, *found.graphs)):
        for key in ("memory_limit_hint", "memory_search_steps"):
            if found.keys.get(key):
                raise ConfigError(
                    f"config file {path}: {key} is about how tensors share arenas, and disable_memory_optimizations "
                    "keeps them apart; drop one of them"
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
