"""Decide the precision of graphs from what a config file and options ask for."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gputune.client.errors import ConfigError
from gputune.client.model.graph import EXACT, IN_FLOATS, PRECISION_MODES, RULES, STORED, Graph, Precision
from gputune.client.strict_json import a_text, one_of
from gputune.client.suggestions import instead
from gputune.core.dtypes import FLOAT, FLOATS, HALF, HALF_EXTENSION
from gputune.core.identity import DeviceIdentity

log = logging.getLogger(__name__)

MODE, IO_TYPE, KEEP, DOUBLE = "precision_mode", "io_type", "keep_float32", "float64"
QUANTISED = "quantised"
REFUSE = "refuse"
DOUBLES = (REFUSE, FLOAT)
"""The fate of nodes that compute in float64: they are refused, or they compute in float32."""
EVERY = ""
"""In the place of a name: all inputs and outputs."""


@dataclass(frozen=True)
class AskedPrecision:
    """Hold what is asked for. mode: None for what the model says; io_types: by the names of inputs and outputs, or of
    EVERY; kept: nodes and types of nodes that stay in float32; float64: one of DOUBLES; quantised: one of RULES."""

    mode: str | None = None
    io_types: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    float64: str = REFUSE
    quantised: str = EXACT

    @property
    def narrow(self) -> bool:
        """Return whether models are read with float32 in the place of float64."""
        return self.float64 == FLOAT

    def having(
        self,
        mode: str | None,
        io_types: Mapping[str, str] | None,
        kept: Sequence[str],
        float64: str | None,
        quantised: str | None,
    ) -> AskedPrecision:
        """Return it with what options say, unless they say nothing."""
        return AskedPrecision(
            mode or self.mode,
            io_types or self.io_types,
            tuple(kept) or self.kept,
            float64 or self.float64,
            quantised or self.quantised,
        )

    def of(self, graphs: Iterable[Graph]) -> list[Graph]:
        """Return the graphs in this precision. Raises ConfigError for a name that no graph has, and for a type that an
        input or output cannot have."""
        graphs = list(graphs)
        self._check_names(graphs)
        check_quantised(self.quantised, graphs)
        return [replace(graph, precision=self._of(graph)) for graph in graphs]

    def _of(self, graph: Graph) -> Precision:
        kept = {name for name, op in graph.node_ops.items() if name in self.kept or op in self.kept}
        given = {}
        for name in (*graph.inputs, *graph.outputs):
            dtype = self.io_types.get(name, self.io_types.get(EVERY))
            if dtype is not None and graph.stored(name) in FLOATS:
                given[name] = dtype
            elif name in self.io_types:
                raise ConfigError(f"--{IO_TYPE}: {name!r} is {graph.stored(name)}, and stays so; leave it out")
        return Precision(self.mode or "", frozenset(kept), given, self.quantised)

    def _check_names(self, graphs: Sequence[Graph]) -> None:
        given = dict.fromkeys(name for graph in graphs for name in (*graph.inputs, *graph.outputs))
        for name in (name for name in self.io_types if name not in (*given, EVERY)):
            raise ConfigError(f"--{IO_TYPE}: there is no input or output {name!r}; {instead(name, given)}")
        nodes = dict.fromkeys(name for graph in graphs for each in graph.node_ops.items() for name in each)
        for name in (name for name in self.kept if name not in nodes):
            raise ConfigError(f"--{KEEP}: there is no node or type of nodes {name!r}; {instead(name, nodes)}")
        if self.kept and (self.mode or FLOAT) == FLOAT and not any(graph.halves for graph in graphs):
            raise ConfigError(f"--{KEEP} has no effect, as all is in {FLOAT}; drop it, or give --{MODE} {STORED}")


def check_quantised(rules: str, graphs: Sequence[Graph]) -> None:
    """Raise ConfigError for rules of quantised nodes where there are no such nodes."""
    from gputune.client.model.passes.quantised import is_quantised  # not for those who only read keys: it loads kernels

    if rules == IN_FLOATS and not any(map(is_quantised, graphs)):
        raise ConfigError(f"--{QUANTISED} {IN_FLOATS} has no effect, as no node is quantised; drop it")


def io_types(value: object, key: str) -> dict[str, str]:
    """Read the types of inputs and outputs from a config file: a type for all, or types by name. Raises ConfigError."""
    read = one_of(*FLOATS)
    if isinstance(value, Mapping):
        return {a_text(name, key): str(read(each, f"{key} of {name}")) for name, each in value.items()}
    return {EVERY: str(read(value, key))}


def told_io_types(texts: Iterable[str]) -> dict[str, str]:
    """Read TYPE and NAME=TYPE. Raises ConfigError."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, dtype = text.rpartition("=")
        if dtype not in FLOATS:
            raise ConfigError(f"--{IO_TYPE}: {dtype!r} is no type of floats; give {' or '.join(FLOATS)}, or NAME=TYPE")
        found[name] = dtype
    return found


def mode_on(device: DeviceIdentity, asked: AskedPrecision, own: str) -> str:
    """Return the mode that a context has on a device, and log the mode of a model in a shorter type than float32 unless
    it was asked for. own: the model's. Raises ConfigError if the device does not have what is asked for."""
    able = HALF_EXTENSION in device.extensions
    if asked.mode == HALF and not able:
        raise ConfigError(
            f"{device.name} does not compute in float16, as its driver does not offer {HALF_EXTENSION}; "
            f"--{MODE} {STORED} stores float16 and computes in float32"
        )
    if asked.mode or own == FLOAT:
        return asked.mode or FLOAT
    if own != HALF:
        log.info(f"{MODE} {own}: the model is in {own}, and kernels compute in {FLOAT}")
        return own
    mode, offers = (HALF, "offers") if able else (STORED, "does not offer")
    log.info(f"{MODE} {mode}: the model is in float16, and {device.name} {offers} {HALF_EXTENSION}")
    return mode


precision_mode, quantised = one_of(*PRECISION_MODES), one_of(*RULES)
