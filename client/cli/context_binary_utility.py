"""Define `gputune context-binary-utility`, which shows what context binaries hold: a summary for people or JSON for
tools.
"""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gputune.client.cli.say import print_json, say, say_wrapped
from gputune.client.compare.checking import checked
from gputune.client.context.argument_form import IN_WORDS
from gputune.client.context.verifying.exactness import lines_of as quantised_lines
from gputune.client.context.verifying.exactness import quantised_graphs
from gputune.client.context.verifying.origin import Origin, made_from, tuning_in_words
from gputune.client.device_errors import device_errors
from gputune.client.errors import ConfigError
from gputune.client.outputs import write_json
from gputune.client.progress import reporting
from gputune.client.report.sizes import packed_bytes, split_line, split_of
from gputune.client.report.uses import uses_of
from gputune.client.run.packages import lines_of, listing, need_of
from gputune.core.dtypes import FLOAT
from gputune.core.launches import ARGUMENT_FORMS
from gputune.core.statuses import ContextVerdict
from gputune.runtime.context.ep_context import EpContext, EpModel, is_ep_context, read_ep_model
from gputune.runtime.context.format import read_header
from gputune.runtime.context.memory_need import GraphNeed, MemoryNeed, largest_arenas
from gputune.runtime.context.package import is_package, open_package
from gputune.runtime.context.packing import distinct
from gputune.runtime.context.records import ContextHeader, TensorRecord
from gputune.runtime.devices.discovery import DeviceReport, discover
from gputune.runtime.loading.verdict import verdict_on

log = logging.getLogger(__name__)

TOLD = 8
"""Inputs, outputs or models that a summary names; the JSON has all."""


def show_contexts(
    context_binary: list[Path], as_json: bool, json_file: Path | None, compatibility: bool, check: Path | None
) -> None:
    """Show what context binaries contain, or check one. Raises GputuneError."""
    if check is not None:
        _check(context_binary, check, as_json or json_file is not None or compatibility)
        return
    with device_errors():
        reports = discover() if compatibility else None
    contents: dict[str, dict[str, Any]] = {}
    needs: dict[str, MemoryNeed] = {}
    summaries: list[tuple[Path, list[str]]] = []
    for name, path in zip(distinct(path.stem for path in context_binary), context_binary, strict=True):
        if _is_package(path):
            with device_errors(path), open_package(path) as package:
                contents[name] = {"package": listing(package, reports), "file_bytes": path.stat().st_size}
                needs[name] = need_of(package)
            size = f"size: {contents[name]['file_bytes']:,} bytes, a package"
            summaries.append((path, [size, *lines_of(contents[name]["package"])]))
            continue
        with device_errors(path):
            model = read_ep_model(path) if is_ep_context(path) else None
            headers = [read_header(path)] if model is None else [node.open().header for node in model.contexts]
            contents[name] = _content(headers[0], model, reports) | {"file_bytes": path.stat().st_size}
            if model is None:
                contents[name]["bytes_of"] = split_of(headers[0], contents[name]["file_bytes"])
        summaries.append((path, list(_summary(headers[0], contents[name]))))
        for number, header in enumerate(headers):
            needs[f"{name}.{number}" if number else name] = MemoryNeed.of(header.device, header.graphs)
    group = _group(needs.values())
    several = len(contents) > 1
    shown = {"contexts": contents, "group": group} if several else {**next(iter(contents.values())), "group": group}
    if json_file is not None:
        write_json(json_file, shown)
    if as_json:
        print_json(shown)
        return
    for path, lines in summaries:
        say(path)  # in one piece, however long
        for line in lines:
            say_wrapped(line.lstrip(), "  " + " " * (len(line) - len(line.lstrip())))
    for line in _lines(needs, group):
        say_wrapped(line)


def _check(contexts: Sequence[Path], model: Path, shows: bool) -> None:
    """Check that contexts are of a model. shows: whether something else is asked for. Raises GputuneError."""
    if shows:
        raise ConfigError("--check prints its result alone; omit --json, --json_file and --compatibility")
    with reporting(sys.stderr):
        for path in contexts:
            origin = Origin.of(path, model)
            said = checked(origin)
            if origin.match == "same":
                say(said)
            else:
                log.warning(said)


def _is_package(path: Path) -> bool:
    with device_errors(path):
        return is_package(path)


def _content(header: ContextHeader, model: EpModel | None, reports: Iterable[DeviceReport] | None) -> dict[str, Any]:
    """Return the content of a context as JSON values. model: the ONNX file of its nodes; reports: the devices that it
    is held against, if any."""
    content = header.to_dict()
    for graph in content["graphs"]:
        graph["max_spill_fill_size"] = sum(graph["arena_bytes"])
        graph["tuning"] = header.tuning_of(graph["name"])
    if model is not None:
        content["ep_contexts"] = list(map(_shown, model.nodes))
        content["other_nodes"] = model.others
    if reports is not None:
        content["compatibility"] = _verdicts(header, reports)
    return content


def _summary(header: ContextHeader, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a context holds, in lines for people. content: the same as _content gives it."""
    device, made, asked = header.device, header.versions, header.configuration
    simulated = "" if header.computes else ", simulated: it computes nothing"
    yield f"size: {content['file_bytes']:,} bytes"
    if "bytes_of" in content:
        yield split_line(header, content["file_bytes"])
    yield f"device: {device.name}, driver {device.driver_version}, {device.platform}{simulated}"
    yield f"tier: {header.tier}"
    effort = asked.get("tuning_effort")
    yield f"made by: {made.get('gputune', 'unknown')}{f', tuning effort {effort}' if effort else ''}"
    if header.tuning_of(*(graph.name for graph in header.graphs)) != "unknown":
        yield f"it is {tuning_in_words(header)}"
    if header.models or asked.get("models"):
        yield f"it {made_from(header)}"
    if header.precision_mode != FLOAT:
        yield f"precision mode: {header.precision_mode}"
    yield from _held(header)
    exactness = quantised_graphs(header)
    gains = {one.graph: one for one in uses_of(header, "").end_to_end}
    for graph in header.graphs:
        operations = len(dict.fromkeys(launch.operation for launch in graph.launches))
        persistent = f", {len(graph.persistent)} as persistent kernels" if graph.persistent else ""
        yield f"graph {graph.name!r}: operations: {operations}, launches: {len(graph.launches)}{persistent}"
        if graph.argument_form != ARGUMENT_FORMS[0]:
            yield f"  arguments: {IN_WORDS[graph.argument_form]}"
        if needs := header.needs_of(graph):
            yield f"  needs of the device: {', '.join(needs)}"
        for line in quantised_lines(exactness[graph.name]) if graph.name in exactness else ():
            yield f"  {line}"
        yield f"  inputs: {_tensors(graph.inputs)}"
        yield f"  outputs: {_tensors(graph.outputs)}"
        if graph.states is not None:
            yield f"  state: {graph.states}; {graph.states.nbytes(graph.inputs):,} bytes"
        if (gain := gains.get(graph.name)) is not None:
            yield f"  when made: {gain.end_to_end.line}"
    for node in content.get("ep_contexts", ()):
        yield f"EPContext node {node['name']!r}{', main' if node['main'] else ''}: max_size {node['max_size']}"
    if others := content.get("other_nodes"):
        yield f"a model in parts: its other {others} nodes run in onnxruntime"
    for found in content.get("compatibility", ()):
        why = f", {found['reason']}" if found["reason"] else ""
        yield f"on {found['device']}: {found['verdict']}{why}"


def _held(header: ContextHeader) -> Iterator[str]:
    """Yield what the size of a context is made of."""
    nbytes = sum(header.sections[place].length for place in header.weights)
    if packed := packed_bytes(header):
        yield f"weights: {nbytes:,} bytes, of which the device packs {packed:,} when it loads the context"
    elif nbytes:
        yield f"weights: {nbytes:,} bytes, packed anew for each kernel that reads them in another order"
    waiting = {one.program for graph in header.graphs for one in graph.persistent if one.counts}
    everything = dict(enumerate(header.programs))
    persistent = [everything.pop(place) for place in sorted(waiting)]
    for title, programs in (("programs", [*everything.values()]), ("programs of persistent kernels", persistent)):
        binaries, sources = {one.binary for one in programs}, {one.source for one in programs}
        binary, source = (sum(header.sections[place].length for place in part) for part in (binaries, sources))
        if programs:
            yield f"{title}: {len(programs)}; {binary:,} bytes of binary, {source:,} bytes of source"


def _tensors(tensors: Sequence[TensorRecord]) -> str:
    return _few([f"{one.name} {one.dtype}{list(one.shape)}" for one in tensors])


def _few(items: Sequence[str]) -> str:
    """Return the first of them in their order, and how many there are beside."""
    more = f" and {len(items) - TOLD} more" if len(items) > TOLD else ""
    return f"{', '.join(items[:TOLD])}{more}" or "none"


def _group(needs: Iterable[MemoryNeed]) -> dict[str, Any]:
    """Return the bytes of arenas in which all graphs can take turns, and of those of all graphs apart."""
    graphs = [graph for need in needs for graph in need.graphs]
    arenas = largest_arenas(graph.arena_bytes for graph in graphs)
    return {
        "arena_bytes": list(arenas),
        "max_spill_fill_size": sum(arenas),
        "private_bytes": sum(graph.total_bytes for graph in graphs),
    }


def _lines(needs: Mapping[str, MemoryNeed], group: Mapping[str, Any]) -> Iterable[str]:
    """Yield the memory in lines for people. needs: by the names of contexts."""
    graphs = [(name, graph) for name, need in needs.items() for graph in need.graphs]
    for name, graph in graphs:
        whose = f" of {name}" if len(needs) > 1 else ""
        yield f"graph {graph.name!r}{whose}: max_spill_fill_size {graph.total_bytes} bytes{_bound(graph)}"
    if len(graphs) > 1:
        shared, private = group["max_spill_fill_size"], group["private_bytes"]
        share = f" ({shared / private:.1%})" if private else ""
        yield f"in a group: max_spill_fill_size {shared} bytes, apart {private} bytes{share}"


def _bound(graph: GraphNeed) -> str:
    if not graph.bound_bytes:
        return ""
    return ", the least that is possible" if graph.bound_bytes == graph.total_bytes else f", bound {graph.bound_bytes}"


def _shown(node: EpContext) -> dict[str, object]:
    """Return what a node of an ONNX file says; context is the file, or the number of bytes of one that it holds."""
    context = str(node.content) if isinstance(node.content, Path) else node.content.nbytes
    return {"name": node.name, "main": node.main, "max_size": node.max_size, "context": context}


def _verdicts(header: ContextHeader, reports: Iterable[DeviceReport]) -> list[dict[str, str]]:
    """Return how a context fits these devices, in the order of `gputune devices`."""
    found = []
    for report in reports:
        if report.identity is not None:
            verdict, reason = verdict_on(header, header.graphs, report.identity, not report.simulated)
            if not report.usable:
                verdict, reason = ContextVerdict.UNSUPPORTED, report.reason
            found.append({"device": report.title, "verdict": verdict.value, "reason": reason})
    return found
