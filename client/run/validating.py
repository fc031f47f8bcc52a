"""Check that a context binary is complete and fits a device, without running it."""

from pathlib import Path

from gputune.client.context.verifying.origin import made_from, tuning_in_words
from gputune.client.device_errors import device_errors
from gputune.client.errors import DeviceOrContextError
from gputune.core.statuses import ContextVerdict
from gputune.runtime.context.ep_context import ep_contexts, is_ep_context, read_ep_model
from gputune.runtime.context.format import ContextFile, open_context, read_header
from gputune.runtime.context.package import is_package, open_package
from gputune.runtime.contexts.device import OpenDevice
from gputune.runtime.execution.loading import check_trusted, open_device_for
from gputune.runtime.execution.verdict import open_chosen, verdict_on


def graph_names_of(path: Path) -> list[str]:
    """Return the names of a context's graphs, or of the nodes of an ONNX file. Raises DeviceOrContextError."""
    with device_errors(path):
        if is_ep_context(path):
            return [node.name for node in ep_contexts(path)]
        if is_package(path):  # whose contexts have the same graphs
            with open_package(path) as package, package.open(0) as file:
                return [graph.name for graph in file.header.graphs]
        return [graph.name for graph in read_header(path).graphs]


def validated(path: Path, device: str | None, strict: bool) -> str:
    """Return what was found valid, in words: header, the checksum of every section, and how all graphs fit the device
    that would run them; of a package those of the context that fits it best. strict: whether a context for another
    device is an error. Raises DeviceOrContextError."""
    with device_errors(path):
        check_trusted(path)
        if is_package(path):
            with open_package(path) as package:
                backend = open_device_for(package, device)
                with open_chosen(package, backend.identity, backend.computes) as file:
                    return _validated(file, backend, strict)
        model = read_ep_model(path) if is_ep_context(path) else None
        found = []
        for file in [open_context(path)] if model is None else [node.open() for node in model.contexts]:
            with file:
                found.append(_validated(file, open_device_for(file, device), strict))
        if model is not None and model.others:
            found.append(f"a model in parts, whose other {model.others} nodes run in onnxruntime")
        return "; ".join(found)


def _validated(file: ContextFile, backend: OpenDevice, strict: bool) -> str:
    header = file.header
    nbytes = 0
    for index in range(len(header.sections)):
        nbytes += file.section(index).nbytes
    verdict, reason = verdict_on(header, header.graphs, backend.identity, backend.computes)
    name = backend.identity.name
    unfit = verdict is ContextVerdict.UNSUPPORTED or (strict and verdict is not ContextVerdict.OPTIMAL)
    if unfit:
        raise DeviceOrContextError(f"{file.path}: {verdict.value} on {name}: {reason}")
    origin = f"it {made_from(header)}, and is {tuning_in_words(header)}"
    said = f"{len(header.graphs)} graphs, {len(header.sections)} sections with {nbytes} bytes are whole"
    return f"{said}; {verdict.value} on {name}" + (f": {reason}" if reason else "") + f"; {origin}"
