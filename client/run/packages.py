"""Make and describe packages of contexts for the command line."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gputune.client.context.verifying.exactness import quantised_graphs
from gputune.client.device_errors import device_errors
from gputune.client.errors import ConfigError
from gputune.client.model.graph import kind_of
from gputune.client.outputs import writing
from gputune.core.errors import shortened
from gputune.core.ownership import check_trusted
from gputune.runtime.context.format import ContextFile, open_context
from gputune.runtime.context.memory_need import GraphNeed, MemoryNeed, largest_arenas
from gputune.runtime.context.package import Package, is_package, open_package
from gputune.runtime.context.packing import Packing, packing_of, same_device, write_package
from gputune.runtime.devices.discovery import DeviceReport, discover
from gputune.runtime.loading.verdict import choices


@dataclass(frozen=True)
class _Member:
    """A context that goes into a package; its name is empty where it has none yet."""

    name: str
    file: ContextFile


def combine(output: Path, files: Sequence[Path], added: Sequence[Path] = (), removed: Sequence[str] = ()) -> Packing:
    """Write a package of the contexts of files, which may be packages: without those that are removed by their names,
    and with those that are added, which replace what is for the same device and driver. `output` may be one of files.

    Raises ConfigError for a name that there is not; UntrustedFile for what another user could change, since a package
    is the user's own; as write_package does,
    OutputError.
    """
    with ExitStack() as stack:
        members = [member for path in files for member in _members(stack, path)]
        for name in removed:
            kept = [member for member in members if member.name != name]
            if len(kept) == len(members):
                known = shortened(member.name for member in members if member.name)
                raise ConfigError(f"--remove: there is no context {name!r} in {files[0]}; there are {known}")
            members = kept
        for path in added:
            for member in _members(stack, path):
                _put(members, member)
        with writing(output):
            return write_package(output, [member.file for member in members], [member.name for member in members])


def listing(package: Package, reports: Iterable[DeviceReport] | None = None) -> dict[str, Any]:
    """Return what a package holds, as JSON values. reports: the devices that its contexts are held against, if any.
    Raises ContextError for a damaged one."""
    index = package.index
    uses = Counter(place for entry in index.contexts for place in (entry.head, *entry.sections))
    contexts = []
    for place, entry in enumerate(index.contexts):
        own = [index.sections[each].length for each in (entry.head, *entry.sections) if uses[each] == 1]
        with package.open(place) as file:
            graphs = {graph.name: sum(graph.arena_bytes) for graph in file.header.graphs}
            header = file.header
            tuning = {name: header.tuning_of(name) for name in graphs}
        contexts.append(
            {
                "name": entry.name,
                "tier": entry.tier,
                "device": entry.device.to_dict(),
                "precision_mode": header.precision_mode,
                "quantised": kind_of(quantised_graphs(header).values()) or None,
                "tuning": tuning,
                "models": [asdict(one) for one in header.models],
                "computes": entry.computes,
                "file_bytes": entry.nbytes,
                "own_bytes": sum(own),
                "max_spill_fill_size": graphs,
            }
        )
    listed = {**asdict(packing_of(index, package.nbytes)), "contexts": contexts}
    return listed if reports is None else listed | {"compatibility": _compatibility(package, reports)}


def listed(path: Path, compatibility: bool = False) -> dict[str, Any]:
    """Return what listing() gives for a file. compatibility: with the devices of this machine. Raises GputuneError."""
    with device_errors(path), open_package(path) as package:
        return listing(package, discover() if compatibility else None)


def in_several_modes(listed: Mapping[str, Any]) -> Iterator[str]:
    """Return a line about contexts in different precision modes, if there are such in what listing() gave."""
    modes = {context["name"]: _mode(context) for context in listed["contexts"]}
    if len(set(modes.values())) > 1:
        named = ", ".join(f"{name!r} {mode}" for name, mode in modes.items())
        yield f"outputs differ between devices, because contexts have different precision modes: {named}"


def _mode(context: Mapping[str, Any]) -> str:
    """Return how a context stores and computes numbers."""
    quantised = context["quantised"]
    return f"{context['precision_mode']}{f' quantised {quantised}' if quantised else ''}"


def lines_of(listed: Mapping[str, Any]) -> Iterator[str]:
    """Yield what listing() gave, in lines for people."""
    for context in listed["contexts"]:
        device = context["device"]
        yield (
            f"context {context['name']!r}: {device['name']} ({device['platform']}, driver {device['driver_version']}), "
            f"{_mode(context)}, {context['file_bytes']} bytes, {context['own_bytes']} of its own"
        )
    yield from in_several_modes(listed)
    for found in listed.get("compatibility", ()):
        for place, context in enumerate(found["contexts"]):
            taken = "takes " if place == 0 and context["fit"] != "unsupported" else ""
            why = f", distance {context['distance']}: {context['reason']}" if context["reason"] else ""
            yield f"{found['device']}: {taken}{context['name']!r}: {context['fit']}{why}"


def need_of(package: Package) -> MemoryNeed:
    """Return what any of the contexts needs at most. Raises ContextError."""
    needs = []
    for place in range(len(package.contexts)):
        with package.open(place) as file:
            needs.append(MemoryNeed.of(file.header.device, file.header.graphs))
    graphs = zip(*(need.graphs for need in needs), strict=False)
    largest = (GraphNeed(each[0].name, largest_arenas(graph.arena_bytes for graph in each), 0) for each in graphs)
    return MemoryNeed(max(need.alignment for need in needs), tuple(largest))


def _members(stack: ExitStack, path: Path) -> list[_Member]:
    check_trusted(path)
    if not is_package(path):
        return [_Member("", stack.enter_context(open_context(path)))]
    package = stack.enter_context(open_package(path))
    return [
        _Member(entry.name, stack.enter_context(package.open(place))) for place, entry in enumerate(package.contexts)
    ]


def _put(members: list[_Member], new: _Member) -> None:
    """Put a context in the place of the one for the same device and driver, else behind the others."""
    for place, member in enumerate(members):
        if same_device(member.file.header, new.file.header):
            same_tier = member.file.header.tier == new.file.header.tier
            members[place] = _Member(member.name if same_tier else new.name, new.file)
            return
    members.append(new)


def _compatibility(package: Package, reports: Iterable[DeviceReport]) -> list[dict[str, Any]]:
    """Return how the contexts fit these devices, the best first; a device that does not work takes none."""
    found = []
    for report in reports:
        if report.identity is not None and report.usable:
            fitting = choices(package, report.identity, not report.simulated)
            contexts = [
                {
                    "name": choice.name,
                    "verdict": choice.verdict.value,
                    "fit": choice.fit,
                    "distance": choice.distance,
                    "reason": choice.reason,
                }
                for choice in fitting
            ]
            found.append({"device": report.title, "contexts": contexts})
    return found
