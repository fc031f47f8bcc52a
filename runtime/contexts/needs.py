"""Refuse graphs that need features which a device does not prove."""

from __future__ import annotations

from gputune.core.errors import WrongDevice
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.contexts.device import NativeDevice


def proved_needs(file: ContextFile, graph: GraphRecord, device: NativeDevice | Backend) -> list[str]:
    """Return the features that a graph needs, which the device has proved.

    The name of a processor does not say which instructions it has, so also a device with the right name is asked; it
    answers from a file if it was asked before. Raises WrongDevice with the missing features and the reasons.
    """
    needs = file.header.needs_of(graph)
    reasons = device.prove(needs) if needs else {}
    if lacking := "; ".join(f"{name}, because {reason}" for name, reason in reasons.items() if reason):
        name = device.identity.name
        raise WrongDevice(f"{file.path}: graph {graph.name!r} needs features that {name} does not prove: {lacking}")
    return needs
