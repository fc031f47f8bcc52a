from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputune.cache import PerformanceCache
from pages.headless import Browser, chromium, find_chromium
from stress import made_up_cache
from tests.shared_server import SharedServer

from .commands import Generate, Gputune, Ran
from .contexts import small_context


@pytest.fixture
def gputune(capfd: pytest.CaptureFixture[str]) -> Gputune:
    return Gputune(capfd)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[PerformanceCache]:
    with PerformanceCache.open(tmp_path / "cache.sqlite", secret=b"s" * 32) as opened:
        yield opened


@pytest.fixture
def null_target(null_server: SharedServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """Options that name the server on the null device."""
    token_file = tmp_path_factory.getbasetemp() / f"token of {null_server.pid}"
    if not token_file.exists():
        token_file.touch(0o600)
        token_file.write_text(null_server.token)
    return "--target", f"{null_server.host}:{null_server.port}", "--token_file", token_file


@pytest.fixture
def generate(gputune: Gputune, tmp_path: Path, null_target: tuple[object, ...]) -> Generate:
    return Generate(gputune, tmp_path, null_target)


@pytest.fixture
def net_run(gputune: Gputune, tmp_path: Path) -> Callable[..., Ran]:
    """net-run of a small context with three lines of inputs, which writes into the folder."""
    small_context(tmp_path / "context.bin")
    (tmp_path / "x.raw").write_bytes(bytes(32))
    (tmp_path / "inputs.txt").write_text(f"{tmp_path}/x.raw\n" * 3)
    return lambda *options: gputune(
        "net-run", "--retrieve_context", tmp_path / "context.bin", "--input_list", tmp_path / "inputs.txt",
        "--output_dir", tmp_path / "results", "--summary_json", tmp_path / "summary.json", *options,
    )  # fmt: skip


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A made-up performance cache and a context."""
    return made_up_cache.make(tmp_path_factory.mktemp("made_up"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip("there is no Chromium on this machine")
    with chromium(path, 300) as running:
        yield running
