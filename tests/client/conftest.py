from collections.abc import Iterator
from pathlib import Path

import pytest

from gputune.cache import PerformanceCache
from gputune.client.target.embedded_server import EmbeddedServer

from .commands import Gputune


@pytest.fixture
def gputune(capfd: pytest.CaptureFixture[str]) -> Gputune:
    return Gputune(capfd)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[PerformanceCache]:
    with PerformanceCache.open(tmp_path / "cache.sqlite", secret=b"s" * 32) as opened:
        yield opened


@pytest.fixture(scope="session")
def null_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[object, ...]]:
    """Options that name one server on the null device for all tests that leave it alive, which starts only once."""
    server = EmbeddedServer.start("null")
    try:
        token_file = tmp_path_factory.mktemp("null target") / "token"
        token_file.touch(0o600)
        token_file.write_text(server.token)
        yield "--target", f"{server.host}:{server.port}", "--token_file", token_file
    finally:
        server.stop()
