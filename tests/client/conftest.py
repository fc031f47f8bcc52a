from collections.abc import Iterator
from pathlib import Path

import pytest

from gputune.cache import PerformanceCache
from gputune.client.target.embedded_server import EmbeddedServer
from pages.headless import Browser, chromium, find_chromium

from .commands import Generate, Gputune


@pytest.fixture
def gputune(capfd: pytest.CaptureFixture[str]) -> Gputune:
    return Gputune(capfd)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[PerformanceCache]:
    with PerformanceCache.open(tmp_path / "cache.sqlite", secret=b"s" * 32) as opened:
        yield opened


@pytest.fixture(scope="session")
def null_server() -> Iterator[EmbeddedServer]:
    """One server on the null device for all tests that leave it alive, which starts only once."""
    server = EmbeddedServer.start("null")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def null_target(null_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """Options that name the server on the null device."""
    token_file = tmp_path_factory.mktemp("null target") / "token"
    token_file.touch(0o600)
    token_file.write_text(null_server.token)
    return "--target", f"{null_server.host}:{null_server.port}", "--token_file", token_file


@pytest.fixture
def generate(gputune: Gputune, tmp_path: Path, null_target: tuple[object, ...]) -> Generate:
    return Generate(gputune, tmp_path, null_target)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip("there is no Chromium on this machine")
    with chromium(path, 300) as running:
        yield running
