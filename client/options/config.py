"""Define what the config file of the context binary generator may ask for, and options in the place of its keys.

The keys are those that tuning-mode users know, and gputune's own. Options of tuning are in tuning.py.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError
from gputune.client.input_values import Value
from gputune.client.options import shared
from gputune.client.options.config_file import Keys, read_file
from gputune.client.options.inputs import IO_TYPES
from gputune.client.options.kinds import COUNT, FLAG, NAMES, NOT, choice
from gputune.client.options.kinds import names as different_names
from gputune.client.options.option import (
    MODEL,
    Kind,
    Option,
    option,
    options_of,
    over,
    same,
)
from gputune.client.options.tuning import MODE, TuningOptions
from gputune.client.strict_json import a_path, a_text
from gputune.client.suggestions import instead
from gputune.core.dtypes import FLOAT, FLOATS, HALF
from gputune.core.launches import ARGUMENT_FORMS, SHARING, ArgumentForm, Sharing
from gputune.core.precision import EXACT, STORED

SEARCH_STEPS = 4000
"""Steps of the search for smaller arenas. About two seconds on a slow machine, for networks of some hundred tensors
that need all of it; most need far less."""
MEASURED = "measured"
"""The form of arguments that is fastest on the device."""
WEIGHTS = ("auto", "packed", "compact")
"""How a context has constants that kernels read in an order of their own: in that order, or as the model has them, to
be packed when the context is loaded."""
REFUSE, HOST = "refuse", "host"
UNSUPPORTED = (REFUSE, HOST)
"""The fate of nodes that have no kernels: the model is refused, or they stay in onnxruntime on the host."""
DOUBLES = (REFUSE, FLOAT)
"""The fate of nodes that compute in float64: they are refused, or they compute in float32."""
PERF_HINTS = "high_performance for 'high', balanced for 'normal', power_saver for 'low'"


def normal_priority(value: object, key: str) -> str:
    """Return the priority that queues have which ask for none. Raises ConfigError for another."""
    if (priority := a_text(value, key)) != "normal":
        raise ConfigError(f"{key}: {priority!r} is not supported: queues have the normal priority; leave it out")
    return priority


def _addresses(value: object, key: str) -> str:
    """Return targets with commas between them. Raises TargetError for what is no address."""
    from gputune.client.addresses import parse_address  # what most commands only need later

    found = a_text(value, key)
    for address in found.split(","):
        parse_address(address, key)
    return found


_KEPT = Kind(
    lambda values, _: tuple(name for names in values for name in names.split(",")),
    different_names,
    lambda values, _: tuple(values),
    {"metavar": "NODE,OPTYPE,...", "multiple": True},
    hint="Sequence[str]",
    nothing=(),
    value="list of names",
)
_of_model = functools.partial(option, group=MODEL, key=True, sparse=True, decides=True)
_key = functools.partial(option, key=True, only_key=True)
FOLDER = Kind(json=a_path, value="folder")


@dataclass(frozen=True)
class AskedPrecision:
    """Hold what is asked of the types of floats. mode: None for what the model says; io_types: by the names of inputs
    and outputs, or of EVERY; kept: nodes and types of nodes that stay in float32."""

    mode: str | None = same(
        shared.PRECISION_MODE,
        None,
        help=f"How tensors and weights are stored. {FLOAT}: the default. {STORED}: in float16 on any device, and "
        f"kernels compute in {FLOAT}. {HALF}: on a device that can, kernels may multiply in float16, too. A model in "
        f"float16 has {HALF} by default if the device can, and {STORED} if not.",
        key=True,
        key_help="as `--precision_mode` ([accuracy](accuracy.md#float16))",
        decides=True,
        told="",
    )
    io_types: Mapping[str, str] = _of_model(
        dict,
        IO_TYPES,
        f"Type of the inputs and outputs, or of the one with this name: {', '.join(FLOATS)}. Repeat it for "
        "several names.  [default: as in the model]",
        name="io_type",
        argument="io_type",
        python_help="Type of all inputs and outputs, or types by name.",
        key_help="as `--io_type`: a type of floats for all inputs and outputs, or by name",
    )
    kept: tuple[str, ...] = _of_model(
        (),
        _KEPT,
        "Store the results of these nodes, and of these types of nodes, in float32 in every precision mode.",
        name="keep_float32",
        argument="keep_float32",
        key_help="as `--keep_float32`: nodes and types of nodes whose results stay in float32",
    )
    float64: str = _of_model(
        REFUSE,
        choice(*DOUBLES, value=f"`{REFUSE}` (default) or `{FLOAT}`"),
        f"refuse, the default: a model that computes in float64 is refused. {FLOAT}: it computes in {FLOAT} instead, "
        f"and inputs and outputs that are float64 are {FLOAT}, too.",
        argument="float64",
        key_help="as `--float64`: a model that computes in float64 is refused, or computes in float32",
    )
    quantised: str = same(
        shared.QUANTISED,
        EXACT,
        key=True,
        key_help="as `--quantised`: [rules of a quantised model](quantised.md#exact-or-in-floats)",
        decides=True,
        told="",
    )

    @property
    def narrow(self) -> bool:
        """Return whether models are read with float32 in the place of float64."""
        return self.float64 == FLOAT


_of_graph = functools.partial(option, True, key=True, only_key=True, sections=("file", "graph"), told="")


@dataclass(frozen=True)
class GraphSettings:
    """How a graph is made and run. persistent_kernels: also in fewer launches. queue_recording: launches may run
    as a recorded queue. fusion: operations in one kernel where that is faster. shared_memory: tensors that are never
    alive together share arenas, else each has a place of its own."""

    persistent_kernels: bool = _of_graph(
        FLAG,
        key_help="let a persistent kernel replace many launches (default: `true`). On a busy CPU inferences change to "
        "single launches by themselves; `false` only saves the attempts. With effort `none` they are only compiled if "
        "they may save 3 % of an inference",
    )
    queue_recording: bool = _of_graph(
        NOT,
        name="disable_queue_recording",
        key_help="always enqueue launches one by one, never as a [recorded queue](fast_networks.md#recorded-queues) "
        "(default: `false`). The context carries the setting",
    )
    fusion: bool = _of_graph(
        NOT,
        name="disable_node_optimizations",
        key_help="keep operations in separate kernels if fusing them is optional; an activation after its convolution "
        "stays fused",
    )
    shared_memory: bool = _of_graph(
        NOT,
        name="disable_memory_optimizations",
        key_help="give each tensor between kernels its own memory, for debugging; needs more memory",
    )


GRAPH_NAMES = Option(
    "graph_names",
    NAMES,
    key="graph_names",
    sections=("file", "graph"),
    key_help="the graphs for which the four keys from `persistent_kernels` to `disable_memory_optimizations` apply "
    "(default: all); `graph_configs` sets them for each graph",
)


@dataclass(frozen=True)
class GraphKeys:
    """Settings of the graphs that have these names, or of all where there are none."""

    names: tuple[str, ...]
    settings: Mapping[str, bool]


@dataclass(frozen=True)
class Config:
    """Hold what the config file asks for, and options in its place. tuning_mode: None if it says nothing. graphs: what
    comes later goes before."""

    tuning_mode: bool | None = _key(
        None,
        FLAG,
        key_help="tune or not; `false` is effort `none` and contradicts other efforts. Keys about tuning need `true`",
        told="",
    )
    performance_cache_dir: Path | None = same(
        shared.PERFORMANCE_CACHE_DIR, None, key=True, needs=MODE, decides=True, told=""
    )
    invalidate_performance_cache: bool = _key(
        False,
        FLAG,
        needs=MODE,
        key_help="empty this device's cache before tuning; a run that continues an interrupted run keeps it",
    )
    system_performance_cache_dir: Path | None = _key(
        None, FOLDER, needs=MODE, key_help="take from this folder what your cache of the device does not know"
    )
    kernel_repo_path: Path | None = _key(
        None,
        FOLDER,
        key_help="where to keep compiled programs (default: in the performance cache; none without tuning). Programs "
        "of other installations are not used ([how tuning works](how_tuning_works.md#compiled-programs-of-a-cache))",
    )
    invalidate_kernel_repo: bool = _key(False, FLAG, key_help="delete compiled programs first")
    target: str | None = _key(
        None, Kind(json=_addresses, value="address, or several separated by commas"), key_help="as `--target`", told=""
    )
    context_priority: str = _key("normal", Kind(json=normal_priority), sections=("context",))
    enable_graphs: tuple[str, ...] = _key((), NAMES, sections=("context",))
    memory_search_steps: int = _key(
        SEARCH_STEPS,
        COUNT,
        key_help=f"how long to search for smaller arenas (default: {SEARCH_STEPS}, at most some seconds for each "
        "graph; stops at the bound); 0 keeps the first plan",
    )
    memory_limit_hint: int = _key(
        0,
        replace(COUNT, value="bytes, 0 for none"),
        sections=("file", "context"),
        key_help="a limit for arenas and packed weights together (default: 0). Kernels that need less memory replace "
        "others, least lost time for each byte first; `--summary_json` reports the cost. If nothing measured fits, the "
        "smallest context is written with a warning",
    )
    weights: str = _of_model(
        WEIGHTS[0],
        choice(*WEIGHTS, value=", ".join(f'`"{one}"`' for one in WEIGHTS)),
        "packed: store weights as the kernels read them. compact: store them as the model has them, and pack them on "
        "the device when the context is loaded; the file is smaller, and loading takes longer. auto, the default: pack "
        "only those at load that packing makes much larger, if loading takes at most 1.2 times as long. Effort none "
        "measures nothing, so auto is packed.",
        argument="weights",
        decides=False,
        told="",
    )
    unsupported: str = _of_model(
        REFUSE,
        choice(*UNSUPPORTED, value=f"`{REFUSE}` (default) or `{HOST}`"),
        "refuse, the default: a model with nodes that have no kernels is refused. host: such nodes stay in "
        "onnxruntime, and an ONNX file is written that runs the whole model there, with an EPContext node for each "
        "part that runs on the device. This needs onnxruntime.",
        argument="unsupported",
        key_help="as `--unsupported`: nodes without kernels [stay in onnxruntime](onnxruntime.md)",
    )
    input_values: Mapping[str, Value] = same(
        shared.VALUES_OF_MODELS,
        dict,
        key="input_values",
        key_help="as [`--input_value`](#inputs-that-are-constants), which takes precedence for the same input",
        decides=True,
        told="",
    )
    state: tuple[str, ...] = same(
        shared.STATE,
        (),
        key=True,
        sparse=True,
        key_help="as `--state`: [outputs are inputs of the next inference](decoders.md)",
        decides=True,
    )
    state_capacity: tuple[int, ...] = same(
        shared.STATE_CAPACITY, (), key=True, sparse=True, key_help="as `--state_capacity`", decides=True
    )
    argument_form: str = _key(
        MEASURED,
        choice(MEASURED, *ARGUMENT_FORMS, value=", ".join(f'`"{one}"`' for one in (MEASURED, *ARGUMENT_FORMS))),
        key_help="how [launches are given](fast_networks.md#arguments-of-launches) what lies in arenas (default: "
        '`"measured"`, on CPUs `"sub_buffers"`)',
    )
    programs: Sharing = _key(
        SHARING[0],
        choice(*SHARING, value=", ".join(f'`"{one}"`' for one in SHARING)),
        key_help='which launches share a [program](fast_networks.md#programs) (default: `"auto"`)',
    )
    enable_spill_fill_buffer: bool = _key(
        False,
        FLAG,
        key_help="share [arenas](memory.md) with other contexts that have this key, as `net-run --share_spill_fill` "
        "does (default: `false`)",
    )
    precision: AskedPrecision = field(default_factory=AskedPrecision)
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

    def sharing(self, plain: bool, kept: bool) -> Sharing:
        """Return which launches share a program: none of plain ones, and by default none if programs are kept."""
        return "each" if plain or (kept and self.programs == "auto") else self.programs

    def having(self, given: Mapping[str, Any]) -> Config:
        """Return it with what options say, by their names. An option of tuning, and the value of an input, goes before
        the same of the file only."""
        values = {"input_value": {**self.input_values, **given.get("input_value", {})}}
        own = over(self, {**given, **values})
        return replace(own, precision=over(self.precision, given), tuning=self.tuning.having(given))

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


_RECORDS = (Config, AskedPrecision, GraphSettings, TuningOptions)
CONFIGURED = tuple(one for record in _RECORDS for one in options_of(record))
"""What a config file or an option decides."""
_LOADING = "it is about loading, but this command makes a context; leave it out here, and give net-run"
KEYS = Keys(
    (*CONFIGURED, GRAPH_NAMES),
    refused={
        "tuning_effort": "the effort is an option, --tuning_effort; leave the key out",
        "perf_hint": f"clocks are an option, --perf_profile NAME: {PERF_HINTS}",
        "cache_compatibility_mode": f"{_LOADING} --cache_compatibility_mode",
        "num_max_events": f"{_LOADING} a --config_file with it",
        "graph_priority": "queues have the normal priority; leave it out",
        "is_persistent_binary": "a context is read from its file part by part, and no copy of it is kept; leave it out",
        "async_execute_queue_depth": "inferences of one context follow one another; leave it out",
    },
)


def read_config(path: Path | None) -> Config:
    """Return the config file's content, every key checked. Raises ConfigError, and TargetError for a target's address;
    no path means no wishes."""
    if path is None:
        return Config()
    found = read_file(path, KEYS)
    _check_together(path, found.keys, found.graphs)
    fields = {record: _fields(record, found.keys) for record in _RECORDS}
    graphs = [GraphKeys((), fields[GraphSettings])]
    graphs += [GraphKeys(each[GRAPH_NAMES.key], _fields(GraphSettings, each)) for each in found.graphs]
    return Config(
        **fields[Config],
        precision=AskedPrecision(**fields[AskedPrecision]),
        graphs=tuple(each for each in graphs if each.settings),
        tuning=TuningOptions(**fields[TuningOptions]),
    )


def _fields(record: type[Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that keys say."""
    return {each.of: keys[each.key] for each in options_of(record) if each.key and each.key in keys}


def _check_together(path: Path, keys: Mapping[str, Any], graphs: Collection[Mapping[str, Any]]) -> None:
    """Raise ConfigError for keys that need others, or rule them out."""
    for one in CONFIGURED:
        if one.key in keys and one.needs and keys.get(one.needs) is not True:
            raise ConfigError(f'config file {path}: {one.key} needs "{one.needs}": true, too')
    if any(each.get("disable_memory_optimizations") is False for each in (keys, *graphs)):
        for key in ("memory_limit_hint", "memory_search_steps"):
            if keys.get(key):
                raise ConfigError(
                    f"config file {path}: {key} is about how tensors share arenas, and disable_memory_optimizations "
                    "keeps them apart; drop one of them"
                )
