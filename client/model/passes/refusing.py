"""Raise the error that names a node when one of its numbers has no meaning; no other module does."""

from collections.abc import Iterator
from contextlib import contextmanager

from gputune.client.model.graph import Node


@contextmanager
def refusing(node: Node) -> Iterator[None]:
    """Turn a ValueError in the block, which says what has no meaning, into the node's ModelError."""
    try:
        yield
    except ValueError as error:
        raise node.unsupported(str(error)) from error
