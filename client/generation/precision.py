"""Give graphs the precision that a config file and options ask for."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gputune.client.errors import ConfigError
from gputune.client.model.graph import Graph, Precision
from gputune.client.model.passes.quantised import is_quantised
from gputune.client.options.config import AskedPrecision
from gputune.client.options.inputs import EVERY
from gputune.client.suggestions import instead
from gputune.core.dtypes import FLOAT, FLOATS, HALF, HALF_EXTENSION
from gputune.core.identity import DeviceIdentity
from gputune.core.precision import IN_FLOATS, STORED

log = logging.getLogger(__name__)


def in_precision(asked: AskedPrecision, graphs: Iterable[Graph]) -> list[Graph]:
    """Return the graphs in this precision. Raises ConfigError for a name that no graph has, and for a type that an
    input or output cannot have."""
    graphs = list(graphs)
    _check_names(asked, graphs)
    check_quantised(asked.quantised, graphs)
    return [replace(graph, precision=_of(asked, graph)) for graph in graphs]


def _of(asked: AskedPrecision, graph: Graph) -> Precision:
    kept = {name for name, op in graph.node_ops.items() if name in asked.kept or op in asked.kept}
    given = {}
    for name in (*graph.inputs, *graph.outputs):
        dtype = asked.io_types.get(name, asked.io_types.get(EVERY))
        if dtype is not None and graph.stored(name) in FLOATS:
            given[name] = dtype
        elif name in asked.io_types:
            raise ConfigError(f"--io_type: {name!r} is {graph.stored(name)}, and stays so; leave it out")
    return Precision(asked.mode or "", frozenset(kept), given, asked.quantised)


def _check_names(asked: AskedPrecision, graphs: Sequence[Graph]) -> None:
    given = dict.fromkeys(name for graph in graphs for name in (*graph.inputs, *graph.outputs))
    for name in (name for name in asked.io_types if name not in (*given, EVERY)):
        raise ConfigError(f"--io_type: there is no input or output {name!r}; {instead(name, given)}")
    nodes = dict.fromkeys(name for graph in graphs for each in graph.node_ops.items() for name in each)
    for name in (name for name in asked.kept if name not in nodes):
        raise ConfigError(f"--keep_float32: there is no node or type of nodes {name!r}; {instead(name, nodes)}")
    if asked.kept and (asked.mode or FLOAT) == FLOAT and not any(graph.halves for graph in graphs):
        raise ConfigError(
            f"--keep_float32 has no effect, as all is in {FLOAT}; drop it, or give --precision_mode {STORED}"
        )


def check_quantised(rules: str, graphs: Sequence[Graph]) -> None:
    """Raise ConfigError for rules of quantised nodes where there are no such nodes."""
    if rules == IN_FLOATS and not any(map(is_quantised, graphs)):
        raise ConfigError(f"--quantised {IN_FLOATS} has no effect, as no node is quantised; drop it")


def mode_on(device: DeviceIdentity, asked: AskedPrecision, own: str) -> str:
    """Return the mode that a context has on a device, and log the mode of a model in a shorter type than float32 unless
    it was asked for. own: the model's. Raises ConfigError if the device does not have what is asked for."""
    able = HALF_EXTENSION in device.extensions
    if asked.mode == HALF and not able:
        raise ConfigError(
            f"{device.name} does not compute in float16, as its driver does not offer {HALF_EXTENSION}; "
            f"--precision_mode {STORED} stores float16 and computes in float32"
        )
    if asked.mode or own == FLOAT:
        return asked.mode or FLOAT
    if own != HALF:
        log.info(f"precision_mode {own}: the model is in {own}, and kernels compute in {FLOAT}")
        return own
    mode, offers = (HALF, "offers") if able else (STORED, "does not offer")
    log.info(f"precision_mode {mode}: the model is in float16, and {device.name} {offers} {HALF_EXTENSION}")
    return mode
