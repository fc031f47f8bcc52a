"""gputune context-binary-utility"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gputune.client.cli.device_errors import device_errors
from gputune.client.cli.options.files import files
from gputune.client.cli.say import print_json, say
from gputune.client.outputs import write_json
from gputune.client.run.contexts import names_of
from gputune.client.run.packages import lines_of, listing, need_of
from gputune.core.statuses import ContextVerdict
from gputune.runtime.context.ep_context import EpContext, ep_contexts, is_ep_context
from gputune.runtime.context.format import read_header
from gputune.runtime.context.memory_need import GraphNeed, MemoryNeed, largest_arenas
from gputune.runtime.context.package import is_package, open_package
from gputune.runtime.context.records import ContextHeader
from gputune.runtime.devices.discovery import DeviceReport, discover
from gputune.runtime.execution.verdict import verdict_on


@click.command("context-binary-utility")
@click.option(
    "--context_binary",
    callback=files,
    metavar="FILE[,...]",
    required=True,
    help="The context binary, or several with commas between them, to learn what they need as a group. In a list, a "
    "path with a comma stands in double quotes of its own.",
)
@click.option("--json_file", type=click.Path(path_type=Path), help="Where to write; standard output otherwise.")
@click.option("--compatibility", is_flag=True, help="Say how it fits each device of this machine, too.")
def command(context_binary: list[Path], json_file: Path | None, compatibility: bool) -> None:
    """Write what a context binary holds as JSON: graphs, tensors, device, versions, configuration, sizes. In lines it
    says max_spill_fill_size, the bytes of arenas: of each graph, and of all in a group that shares them.

    Only the header is read; no device is needed. Of an ONNX file it is the first main context, and what its nodes say;
    of a package each of its contexts with its tier, and as memory what any of them needs at most.
    """
    with device_errors():
        reports = discover() if compatibility else None
    contents: dict[str, dict[str, Any]] = {}
    needs: dict[str, MemoryNeed] = {}
    packages: list[dict[str, Any]] = []
    for name, path in zip(names_of(context_binary), context_binary, strict=True):
        if _is_package(path):
            with device_errors(path), open_package(path) as package:
                contents[name] = {"package": listing(package, reports), "file_bytes": path.stat().st_size}
                needs[name] = need_of(package)
            packages.append(contents[name]["package"])
            continue
        with device_errors(path):
            nodes = ep_contexts(path) if is_ep_context(path) else []
            headers = [node.open().header for node in nodes if node.main] or [read_header(path)]
            contents[name] = _content(headers[0], nodes, reports) | {"file_bytes": path.stat().st_size}
        for number, header in enumerate(headers):
            needs[f"{name}.{number}" if number else name] = MemoryNeed.of(header.device, header.graphs)
    group = _group(needs.values())
    several = len(contents) > 1
    shown = {"contexts": contents, "group": group} if several else {**next(iter(contents.values())), "group": group}
    if json_file is None:
        print_json(shown)
    else:
        write_json(json_file, shown)
    for line in [*(line for listed in packages for line in lines_of(listed)), *_lines(needs, group)]:
        say(line, err=json_file is None)


def _is_package(path: Path) -> bool:
    with device_errors(path):
        return is_package(path)


def _content(
    header: ContextHeader, nodes: Sequence[EpContext], reports: Iterable[DeviceReport] | None
) -> dict[str, Any]:
    """What a context holds, as JSON values. nodes: those of its ONNX file; reports: the devices that it is held
    against, if any."""
    content = header.to_dict()
    for graph in content["graphs"]:
        graph["max_spill_fill_size"] = sum(graph["arena_bytes"])
    if nodes:
        content["ep_contexts"] = list(map(_shown, nodes))
    if reports is not None:
        content["compatibility"] = _verdicts(header, reports)
    return content


def _group(needs: Iterable[MemoryNeed]) -> dict[str, Any]:
    """The bytes of arenas in which all graphs can take turns, and of those of all graphs apart."""
    graphs = [graph for need in needs for graph in need.graphs]
    arenas = largest_arenas(graph.arena_bytes for graph in graphs)
    return {
        "arena_bytes": list(arenas),
        "max_spill_fill_size": sum(arenas),
        "private_bytes": sum(graph.total_bytes for graph in graphs),
    }


def _lines(needs: Mapping[str, MemoryNeed], group: Mapping[str, Any]) -> Iterable[str]:
    """The memory in lines for people. needs: by the names of contexts."""
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
    """What a node of an ONNX file says; context is the file, or the number of bytes of one that it holds."""
    context = node.content.nbytes if isinstance(node.content, memoryview) else str(node.content)
    return {"name": node.name, "main": node.main, "max_size": node.max_size, "context": context}


def _verdicts(header: ContextHeader, reports: Iterable[DeviceReport]) -> list[dict[str, str]]:
    """How a context fits these devices, in the order of `gputune devices`."""
    found = []
    for report in reports:
        if report.identity is not None:
            verdict, reason = verdict_on(header, header.graphs, report.identity, not report.simulated)
            if not report.usable:
                verdict, reason = ContextVerdict.UNSUPPORTED, report.reason
            found.append({"device": report.title, "verdict": verdict.value, "reason": reason})
    return found
