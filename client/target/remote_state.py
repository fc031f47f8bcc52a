"""Keep what graphs remember between inferences on a target: no byte of it comes here unless it is read."""

from __future__ import annotations

from gputune.client.target.client import TargetClient, TargetState
from gputune.core.bounds import Blob
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.executor import DistantState
from gputune.server.protocol.messages import BufferData, Done, ReadState, ResetState


class RemoteState(DistantState):
    """Hold a state on a target, for one thread at a time. Every method raises TargetError: unknown_state when it is
    lost, with its connection or with the server's process that had it."""

    def __init__(
        self, client: TargetClient, context: int, graph: GraphRecord, other: RemoteState | None = None
    ) -> None:
        """Open it for a graph that is loaded as a context there. other: a state that it begins like."""
        super().__init__(graph)
        self._client, self._context = client, context
        self.there: TargetState = client.open_state(context, None if other is None else other.there)
        self.length = 0 if other is None else other.length

    def copy(self) -> RemoteState:
        """Return another state that remembers the same."""
        return RemoteState(self._client, self._context, self._graph, self)

    def close(self) -> None:
        """Free its memory."""
        self._client.free_state(self.there)

    def _reset(self) -> None:
        self._client.ask_state(self.there, ResetState, Done)

    def _content(self, name: str, nbytes: int) -> Blob:
        return self._client.ask_state(self.there, lambda handle: ReadState(handle, name, nbytes), BufferData).data
