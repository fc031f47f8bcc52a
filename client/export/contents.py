"""Read what a file to be exported holds, and check that the C runtime can run it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gputune.client.errors import DeviceOrContextError
from gputune.core.identity import DeviceIdentity
from gputune.core.ownership import check_trusted
from gputune.runtime.context.contents import contexts_in
from gputune.runtime.context.ep_context import ep_contexts, is_ep_context
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import GraphRecord


@dataclass(frozen=True)
class Contents:
    """A file with contexts. files: itself and those that it names, which lie in its folder or below; graphs: those of
    its first context; devices: what each context was made for."""

    path: Path
    files: tuple[Path, ...]
    graphs: tuple[GraphRecord, ...]
    devices: tuple[DeviceIdentity, ...]


def read_contents(path: Path) -> Contents:
    """Return what a context binary, package or ONNX file with EPContext nodes holds. Raises DeviceOrContextError for
    what the C runtime does not run; ContextError subclasses, OSError."""
    files, graphs, devices = [path], [], []
    if is_ep_context(path):
        files += sorted({node.content for node in ep_contexts(path) if isinstance(node.content, Path)})
    for file in files:
        check_trusted(file)
    for context in contexts_in(path):
        _check(context)
        devices.append(context.header.device)
        graphs.append(context.header.graphs)
    return Contents(path, tuple(files), graphs[0], tuple(devices))


def _check(context: ContextFile) -> None:
    if not context.header.computes:
        raise DeviceOrContextError(
            f"{context.path} was made on the null device, which computes nothing; generate it on the device that is to "
            "run it"
        )
