"""Check that a context binary is complete and fits a device, without running it."""

from pathlib import Path

from gputune.client.context.verifying.origin import made_from, tuning_in_words
from gputune.client.device_errors import device_errors
from gputune.client.errors import DeviceOrContextError
from gputune.core.statuses import ContextVerdict
from gputune.runtime.context.format import ContextFile
from gputune.runtime.contexts.device import OpenDevice
from gputune.runtime.loading.model import open_any
from gputune.runtime.loading.verdict import verdict_on


def graph_names_of(path: Path) -> list[str]:
    """Return the names of a context's graphs, or of the nodes of an ONNX file. Raises DeviceOrContextError."""
    with device_errors(path):
        return open_any(path).graph_names()


def validated(path: Path, device: str | None, strict: bool) -> str:
    """Return what was found valid, in words: header, the checksum of every section, and how all graphs fit the device
    that would run them; of a package those of the context that fits it best. strict: whether a context for another
    device is an error. Raises DeviceOrContextError."""
    with device_errors(path):
        model, found = open_any(path), []
        for source in model.files():
            backend, _, file = source.open_on(device)
            with file:
                found.append(_validated(file, backend, strict))
        if model.ep_model is not None and model.in_parts:
            found.append(f"a model in parts, whose other {model.ep_model.others} nodes run in onnxruntime")
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
