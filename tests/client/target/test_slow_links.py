"""Test slow links, and forwarders without a server."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.reconnecting import Reconnecting
from gputune.client.target.transport.credentials import Credentials
from gputune.client.target.transport.liveness import LivenessTimeout
from gputune.client.target.transport.target_connection import dial
from gputune.server.protocol.messages import (
    Ping,
)
from tests.client.fake_target import (
    FAST,
    FakeTarget,
)


@contextmanager
def slow_link(port: int, bytes_per_second: int) -> Iterator[int]:
    """A port that passes on what it is sent at this pace, and what comes back at once. It takes in all that it gets."""
    step_seconds = 0.05

    def forward(source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                to.sendall(data)

    def crawl(source: socket.socket, to: socket.socket, waiting: bytearray, over: threading.Event) -> None:
        with suppress(OSError):
            while not over.wait(step_seconds):
                step = waiting[: int(bytes_per_second * step_seconds)]
                to.sendall(step)
                del waiting[: len(step)]  # not more: meanwhile, others may have come

    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as ends:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    near = listener.accept()[0]
                    far = socket.create_connection(("127.0.0.1", port))
                    waiting, over = bytearray(), threading.Event()
                    for end in (near, far):
                        ends.callback(end.close)
                    ends.callback(over.set)
                    threading.Thread(target=crawl, args=(near, far, waiting, over), daemon=True).start()
                    threading.Thread(target=forward, args=(far, near), daemon=True).start()
                    threading.Thread(target=swallow, args=(near, waiting), daemon=True).start()

        def swallow(source: socket.socket, waiting: bytearray) -> None:
            with suppress(OSError):
                while data := source.recv(1 << 16):
                    waiting.extend(data)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_nobody_behind_a_forwarder_is_not_a_fault_of_tls() -> None:
    """So it is waited for."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            sock = listener.accept()[0]
            sock.recv(1 << 16)
            sock.close()

        threading.Thread(target=hang_up, daemon=True).start()
        credentials = Credentials(tls=ssl.create_default_context())
        with pytest.raises(TargetError, match=r"during the TLS handshake .*\[unreachable\]"):
            dial("127.0.0.1", listener.getsockname()[1], credentials=credentials)


class TestASlowLink:
    @pytest.mark.slow
    def test_is_given_the_time_that_large_data_takes(self, target: FakeTarget) -> None:
        """The forwarder has taken everything in, and the server can answer no ping before the data is through."""
        target.limits = FAST
        with slow_link(target.port, 600_000) as port:
            lines: list[str] = []
            with TargetClient(Reconnecting(lambda: dial("127.0.0.1", port), notice=lines.append)) as client:
                client.upload(bytes(780_000 * FAST.silence_seconds))
                client.ping()
            assert lines == []
        assert sum(isinstance(message, Ping) for _, message in target.heard) <= 3, "one waits behind the data"

    def test_shows_that_it_moves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 100.0
        monkeypatch.setattr("gputune.client.target.transport.liveness.time.monotonic", lambda: now)
        liveness = LivenessTimeout()
        liveness.seconds = 2
        liveness.sent(64_000_000)
        for queued in (30_000_000, 20_000_000, 10_000_000):
            now += 1.5
            assert not liveness.over(queued)
        now += 1
        assert not liveness.over(10_000_000)
        now += 1
        assert liveness.over(10_000_000), "what is stuck here is not on its way"
        assert not liveness.over(0)
        liveness.delivered()
        now += 2
        assert liveness.over(0) and liveness.over(None)
