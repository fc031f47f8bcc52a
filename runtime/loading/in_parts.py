"""Run a model in parts: onnxruntime runs it, and gputune's plugin runs its EPContext nodes on the OpenCL device.

The plugin opens the device itself, through the OpenCL library of this process. As for contexts, the process sees only
one driver: that of the chosen device.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gputune.core.errors import ContextClosed, DeviceNotFound, UnknownGraph, UnusableMemory, WrongDevice, shortened
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Closing, Opened
from gputune.core.ownership import check_trusted
from gputune.core.statuses import ContextChoice, ContextVerdict
from gputune.runtime import onnxruntime as plugin
from gputune.runtime.context.ep_context import EpContext, EpModel
from gputune.runtime.context.records import ContextHeader, GraphRecord, TensorRecord
from gputune.runtime.context.stored import Extent
from gputune.runtime.devices.discovery import SIMULATED, DeviceReport, choose, discover, matches, wanted_device
from gputune.runtime.devices.drivers import OPENCL_LIBRARY
from gputune.runtime.devices.settings import variables
from gputune.runtime.loading.devices import recorded_report
from gputune.runtime.loading.verdict import Compatibility, verdict_on
from gputune.runtime.memory.handles import MemHandle, is_empty
from gputune.runtime.profiling.levels import Level
from gputune.runtime.values import NOTHING, Values

if TYPE_CHECKING:  # most loads do without
    from gputune.runtime.power.profiles.perf_profile import PerfProfile

Array = npt.NDArray[Any]
LEVELS: tuple[Level, ...] = ("basic", "detailed")
"""The plugin records profiles of these levels."""
ANY = -1
"""Stands for a size that is unknown before an inference."""
_TYPES = {"float": "float32", "double": "float64"}
"""onnxruntime's names of element types that differ from numpy's."""
_open: weakref.WeakSet[Any] = weakref.WeakSet()
_of_parents: list[Any] = []
"""Sessions. A fork has none of the threads for which the end of a session waits, so its parents' never end there."""
os.register_at_fork(after_in_child=lambda: _of_parents.extend(_open))


def open_in_parts(
    path: Path,
    model: EpModel,
    device: str | None = None,
    cache_compatibility_mode: Compatibility = "permissive",
    perf_profile: PerfProfile | str | None = None,
    profile: tuple[Level, Path] | None = None,
) -> ModelInParts:
    """Open a model in parts on a device; it needs onnxruntime. model: its EPContext nodes.

    profile: one of LEVELS, and the file of a log of all inferences, which is complete when the model is closed. Raises
    PluginError if onnxruntime or its plugin is missing; as load() does.
    """
    headers = _headers(model)
    parts = [_part(node, headers[node.content]) for node in model.nodes]
    start_ns = time.perf_counter_ns()
    first = headers[model.nodes[0].content]
    found = _device_for(path, first.device, device)
    opened_ns = time.perf_counter_ns()
    warnings = dict.fromkeys(_warnings(headers.values(), parts, found.identity))
    options = {"device": found.option, "cache_compatibility_mode": cache_compatibility_mode}
    if perf_profile is not None:
        options["perf_profile"] = _preset(perf_profile)
    if profile is not None:
        options |= {"profiling_level": profile[0], "profiling_file_path": str(profile[1].absolute())}
    session = plugin.open_session(path, {name: value for name, value in options.items() if value}, found.spins)
    loaded_ns = time.perf_counter_ns()
    opened = ModelInParts(path, session, first, parts, found.identity, list(warnings))
    opened.device_open_ns, opened.load_ns = opened_ns - start_ns, loaded_ns - opened_ns
    opened.recording = partial(open_in_parts, path, model, device, cache_compatibility_mode, perf_profile)
    return opened


class ModelInParts(Closing):
    """Run a model in onnxruntime, with parts on the device. It has the attributes of an Executor that both can have.

    Attributes:
        graph: its name, inputs and outputs; it has no launches of its own. Shapes of outputs are what the file says:
            a size that it does not say is ANY, and so are sizes that depend on the values of inputs.
        parts: the graphs of contexts that run on the device, in order.
        header: of the context of the first of them.
        recording: opens the model once more, with this profile.
        nodes: how many nodes of each operator run in each provider of onnxruntime, after its optimizations; only
            gputune's if this onnxruntime does not say it.
    """

    computes = True
    choice: ContextChoice | None = None
    recording: Callable[[tuple[Level, Path]], ModelInParts]

    def __init__(
        self,
        path: Path,
        session: Any,
        header: ContextHeader,
        parts: Sequence[GraphRecord],
        device: DeviceIdentity,
        warnings: list[str],
    ) -> None:
        """Make a model with open_in_parts. Raises ValueError for inputs and outputs that are no arrays of known
        shapes."""
        self._path = path
        self._session = session
        _open.add(session)
        self._opened = Opened(f"{path} in onnxruntime")
        self._run_options: Any = None
        self.header = header
        self.device = device
        self.warnings = warnings
        self.load_ns = self.device_open_ns = 0
        self.parts = tuple(parts)
        self.nodes = _assigned(session, len(parts))
        sizes = {tensor.name: tensor.shape for part in parts for tensor in part.inputs}
        inputs, outputs = (
            tuple(_tensor(path, kind, one, sizes) for one in found)
            for kind, found in (("input", session.get_inputs()), ("output", session.get_outputs()))
        )
        name = session.get_modelmeta().graph_name or path.stem
        self.graph = GraphRecord(name, inputs, outputs, (), ())

    @property
    def in_words(self) -> str:
        """Return where its nodes run, for people."""
        others = [ops for name, ops in self.nodes.items() if name != plugin.ep_name()]
        cpu = [f"{op} {count}" for ops in others for op, count in ops.items()]
        parts = "1 part runs" if len(self.parts) == 1 else f"{len(self.parts)} parts run"
        rest = f" ({', '.join(cpu)})" if cpu else ""
        return f"{parts} on {self.device.name}, and the rest in onnxruntime{rest}"

    def run(self, inputs: Values = NOTHING, outputs: Values = NOTHING) -> dict[str, Array]:
        """Run one inference as Executor.run does, on arrays. Raises UnusableMemory for memory handles."""
        return self.run_timed(inputs, outputs)[0]

    def run_timed(self, inputs: Values = NOTHING, outputs: Values = NOTHING) -> tuple[dict[str, Array], int]:
        """Run as run does, and also return the ns of the host's clock that it took."""
        self._opened.check()
        if self._session is None:
            raise ContextClosed(f"{self._path} was closed")
        given = self._checked("input", self.graph.inputs, inputs)
        into = self._checked("output", self.graph.outputs, outputs)
        if missing := [one.name for one in self.graph.inputs if one.name not in given]:
            raise ValueError(f"graph {self.graph.name!r} needs the input {missing[0]!r}")
        session, names = self._session, [one.name for one in self.graph.outputs]
        begun_ns = time.perf_counter_ns()
        arrays = plugin.asked(self._path, lambda: session.run(names, given, self._run_options))
        results = dict(zip(names, arrays, strict=True))
        for name, array in into.items():
            if array.shape != results[name].shape:
                raise ValueError(f"output {name!r} is {_words(results[name])}, and {_words(array)} was given for it")
            array[...] = results[name]
            results[name] = array
        return results, time.perf_counter_ns() - begun_ns

    def set_perf_profile(self, profile: PerfProfile | str) -> None:
        """Make later inferences vote for the clocks and power of a preset. Raises ValueError for other profiles."""
        self._run_options = plugin.run_options({"gputune.perf_profile": _preset(profile)})

    def close(self) -> None:
        """Close the session, in a fork at once. A second call does nothing."""
        self._session = None

    def _checked(self, kind: str, known: Sequence[TensorRecord], given: Values) -> dict[str, Array]:
        """Return the arrays that are given for tensors. Raises ValueError that names what is unknown or does not
        fit."""
        records = {one.name: one for one in known}
        ready = {}
        for name, value in given.items():
            if name not in records and kind == "input" and is_empty(value):
                continue
            if name not in records:
                raise ValueError(f"graph {self.graph.name!r} has no {kind} {name!r}; its {kind}s are {list(records)}")
            if isinstance(value, MemHandle):
                raise UnusableMemory(
                    f"{kind} {name!r}: onnxruntime runs this model in parts on arrays; give an array, not a handle"
                )
            array, record = np.asarray(value), records[name]
            fits = kind == "output" or array.shape == record.shape  # files often omit shapes of outputs
            if not fits or array.dtype != np.dtype(record.dtype):
                takes = "takes" if kind == "input" else "gives"
                raise ValueError(
                    f"{kind} {name!r} is {_words(array)}, the graph {takes} {record.dtype}{list(record.shape)}"
                )
            ready[name] = np.ascontiguousarray(array) if kind == "input" else array
        return ready


@dataclass(frozen=True)
class _Found:
    """The device that runs the parts. option: by which the plugin opens it, empty if it does so anyway."""

    identity: DeviceIdentity
    option: str = ""

    @property
    def spins(self) -> bool:
        """Threads of onnxruntime that spin take a CPU device its processors."""
        return self.identity.device_type != "cpu"


def _headers(model: EpModel) -> dict[Path | Extent, ContextHeader]:
    """Return the headers of its contexts, whose files must be trusted. Raises ContextError, OSError."""
    headers = {}
    for node in model.contexts:
        if isinstance(node.content, Path):
            check_trusted(node.content)
        with node.open() as file:
            headers[node.content] = file.header
    return headers


def _part(node: EpContext, header: ContextHeader) -> GraphRecord:
    """Return the graph that a node stands for. Raises UnknownGraph."""
    for graph in header.graphs:
        if graph.name == node.name or not node.name:
            return graph
    known = shortened(graph.name for graph in header.graphs)
    raise UnknownGraph(f"{node.path}: the context has no graph {node.name!r}; its graphs are {known}")


def _device_for(path: Path, made_for: DeviceIdentity, device: str | None) -> _Found:
    """Register the plugin in this process, with the driver of the device that is wanted, else of that which parts were
    made for, else of the best one. Raises DeviceNotFound, WrongDevice, PluginError."""
    wanted = wanted_device(device)
    if wanted in SIMULATED or (wanted or "").partition(":")[0] in SIMULATED:
        raise DeviceNotFound(f"{path}: {wanted!r} computes nothing, and a model in parts needs an OpenCL device")
    if made_for.platform in SIMULATED:
        raise WrongDevice(f"{path}: its parts were made on the device {made_for.name!r}; make them on a real device")
    recorded = recorded_report(made_for)
    fits = wanted is None or (not wanted.isdecimal() and matches(DeviceReport(0, made_for, "", True, ""), wanted))
    if fits and (recorded is not None or OPENCL_LIBRARY in os.environ):  # discovery does not know that library
        with variables({} if recorded is None else recorded.environment()):
            plugin.register()
        seen = plugin.devices()[0].ep_metadata
        if (seen["opencl_platform"], seen["opencl_device"]) == (made_for.platform, made_for.name):
            return _Found(replace(made_for, driver_version=seen["driver_version"]))
    report = choose(discover(), wanted).report
    assert report.identity is not None
    with variables(report.environment()):
        plugin.register()
    if (platform := plugin.devices()[0].ep_metadata["opencl_platform"]) != report.identity.platform:
        raise DeviceNotFound(
            f"{report.title} cannot be opened: this process has opened a device of {platform!r} before"
        )
    return _Found(report.identity, str(report.position))


def _warnings(headers: Iterable[ContextHeader], parts: Sequence[GraphRecord], device: DeviceIdentity) -> Iterator[str]:
    """Yield what is unexpected about parts on a device; the plugin refuses those that it cannot run."""
    for header in headers:
        graphs = [graph for graph in header.graphs if graph in parts]
        verdict, reason = verdict_on(header, graphs, device, computes=True)
        if verdict is ContextVerdict.PREFER_RECOMPILATION:
            yield f"building from source on another device: {reason}"


def _preset(profile: PerfProfile | str) -> str:
    """Return the name of a preset. Raises ValueError."""
    from gputune.runtime.power.profiles.perf_profile import CUSTOM
    from gputune.runtime.power.profiles.presets import preset_name

    name = profile if isinstance(profile, str) else profile.name
    if name == CUSTOM:
        raise ValueError("onnxruntime passes on the names of presets only, not a perf profile of your own")
    return preset_name(name)


def _assigned(session: Any, parts: int) -> dict[str, dict[str, int]]:
    """Return how many nodes of each operator run in each provider."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return {plugin.ep_name(): {"EPContext": parts}}
    counts: dict[str, Counter[str]] = {}
    for group in session.get_provider_graph_assignment_info():
        counts.setdefault(group.ep_name, Counter()).update(node.op_type for node in group.get_nodes())
    return {name: dict(count) for name, count in counts.items()}


def _tensor(path: Path, kind: str, found: Any, sizes: Mapping[str, tuple[int, ...]]) -> TensorRecord:
    """Return an input or output of a session. sizes: of the inputs of parts, which the file leaves open if a branch of
    the model does not fit them. Raises ValueError."""
    inner = str(found.type).removeprefix("tensor(").removesuffix(")")
    shape = tuple(size if isinstance(size, int) else ANY for size in found.shape or ())
    dtype = _TYPES.get(inner, inner)
    try:
        np.dtype(dtype)
    except TypeError:
        raise ValueError(f"{path}: {kind} {found.name!r} is a {found.type}, which is no array of numbers") from None
    if kind == "input" and ANY in shape:
        shape = sizes.get(found.name, shape)
    if kind == "input" and ANY in shape:
        raise ValueError(f"{path}: input {found.name!r} has the shape {found.shape}, but all sizes must be fixed")
    return TensorRecord(found.name, shape, dtype)


def _words(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"
