"""Find the files that a file names, which are read with it; none for a file that cannot be read.

What reads them is loaded when a file is given: most options do without.
"""

from pathlib import Path

from gputune.core.errors import ContextError


def context_files(path: Path) -> list[Path]:
    """Return the context binaries that an ONNX file with EPContext nodes names; none for what cannot be read, which is
    refused when it is loaded."""
    from gputune.runtime.context.ep_context import is_ep_context, read_ep_model

    try:
        nodes = read_ep_model(path).nodes if is_ep_context(path) else []
    except (ContextError, OSError):
        return []
    return [node.content for node in nodes if isinstance(node.content, Path)]


def model_files(path: Path) -> list[Path]:
    """Return the files in which an ONNX model keeps weights."""
    from gputune.client.model.importer import data_files  # which needs onnx

    return data_files(path)


def list_files(path: Path) -> list[Path]:
    """Return the files that an input list names."""
    from gputune.client.input_lists import files_named  # which needs numpy

    return files_named(path)
