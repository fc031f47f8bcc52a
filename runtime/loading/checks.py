"""Check that no other user could change a file, and the names of graphs and modes that are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from gputune.core.errors import UnknownGraph, UntrustedFile
from gputune.core.ownership import untrusted
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import GraphRecord

Compatibility = Literal["permissive", "strict"]


def check_trusted(path: Path | str) -> None:
    """Raise UntrustedFile for a file that another user could change."""
    if why := untrusted(path):
        raise UntrustedFile(f"{path} {why}: a context runs as a program of yours")


def is_strict(mode: Compatibility) -> bool:
    """Return whether a context must be made for exactly this device. Raises ValueError for an unknown mode."""
    if mode not in ("permissive", "strict"):
        raise ValueError(f"cache_compatibility_mode is {mode!r}, expected 'permissive' or 'strict'")
    return mode == "strict"


def graph_named(file: ContextFile, name: str | None) -> GraphRecord:
    """Return the graph of this name; None is the first. Raises UnknownGraph when there is none."""
    graphs = file.header.graphs
    for graph in graphs:
        if name is None or graph.name == name:
            return graph
    raise UnknownGraph(f"{file.path}: there is no graph {name!r}; the graphs are {[graph.name for graph in graphs]}")
