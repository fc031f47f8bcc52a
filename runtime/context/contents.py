"""Open the contexts of a file, whatever holds them, without running them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gputune.runtime.context.ep_context import is_ep_context, read_ep_model
from gputune.runtime.context.format import ContextFile, open_context
from gputune.runtime.context.package import is_package, open_package


def contexts_in(path: Path) -> Iterator[ContextFile]:
    """Yield each context of a context binary, a package, or an ONNX file with EPContext nodes, open until the next one
    is asked for. Raises ContextError, OSError."""
    for file in _opened(path):
        with file:
            yield file


def _opened(path: Path) -> Iterator[ContextFile]:
    if is_ep_context(path):
        yield from (node.open() for node in read_ep_model(path).contexts)
    elif is_package(path):
        with open_package(path) as package:
            yield from (package.open(place) for place in range(len(package.contexts)))
    else:
        yield open_context(path)
