"""Represent a request as it waits for the device, and as the worker gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gputune.core.bounds import Blob
from gputune.server.protocol.messages import OpenState, Progress, states_of
from gputune.server.sessions.session import Materials, Session


class Client(Protocol):
    """Represent a client (client_link.py). tenant: with which other clients it shares the device's time
    (tenants.py)."""

    tenant: str

    def send(self, message: Any, request_id: int) -> None:
        """Send a reply or Progress, if the client is still there."""

    def cost(self, request_id: int) -> int:
        """Return about how many bytes a request of the client takes while it waits."""


@dataclass(eq=False)
class Job:
    """Hold a request that waits for the device or has it.

    sources: the texts that its launches name by hash. programs: their binaries, None until it was tried.
    """

    client: Client
    session: Session
    request_id: int
    request: Any
    message: Any  # the request as the worker gets it
    held_bytes: int
    cancelled: asyncio.Future[None]
    sources: Mapping[str, str]
    programs: Mapping[str, Blob] | None = None
    since: float = 0.0  # when it was given the device last
    before: int = -1  # requests that are served first, as the client was told last
    told: float = 0.0

    def materials(self) -> Materials:
        """Return what it needs on the device, as it is now. Raises ProtocolError when something is gone."""
        return replace(self.session.materials(self.request), sources=self.sources)

    @property
    def has_state(self) -> bool:
        """Return whether it opens a state or is about one."""
        return isinstance(self.request, OpenState) or bool(states_of(self.request))

    def progress(self, message: Progress) -> None:
        self.client.send(message, self.request_id)


@dataclass(eq=False)
class Assignment:
    """Hand a request to the worker: one of worker_link's REQUESTS, or PutContext.

    materials: what it needs on the device, asked for before each attempt; raises ProtocolError when something is gone.
    cancelled: done when the client does not want the reply any more. programs: binaries that are there already.
    """

    request: Any
    materials: Callable[[], Materials]
    progress: Callable[[Progress], None]
    cancelled: asyncio.Future[None]
    programs: Mapping[str, Blob] = field(default_factory=dict)
