"""Test a target without the C runtime: its greeting says so, kernels are measured, and no tuned context is written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.runtime.native.building import REMEDY
from tests.client.commands import Generate, Gputune
from tests.shared_server import SharedServer

from .test_requests import measuring_request, variant

pytestmark = pytest.mark.own("it has no C runtime")
WHY = f"the C runtime is not here: GPUTUNE_CC is 'none'; {REMEDY}"


@pytest.fixture(scope="module")
def target() -> Iterator[SharedServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUTUNE_CC", "none")
        patch.delenv("GPUTUNE_RUNTIME_LIBRARY", raising=False)
        server = SharedServer()
    yield server
    server.stop()


@pytest.fixture
def client(target: SharedServer) -> Iterator[TargetClient]:
    with target.connect() as client:
        yield client


def target_options(target: SharedServer, folder: Path) -> tuple[object, ...]:
    """Return the options of commands for a target, whose token they find in the folder."""
    token = folder / "token"
    token.touch(0o600)
    token.write_text(target.token)
    return "--target", f"{target.host}:{target.port}", "--token_file", token


@pytest.fixture
def generate(target: SharedServer, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Generate:
    return Generate(Gputune(capfd), tmp_path, target_options(target, tmp_path))


def test_it_says_so_and_measures_kernels(client: TargetClient) -> None:
    assert client.server["no_contexts"] == client.why_no_contexts == WHY
    assert client.measure_kernel(measuring_request(client, variant())).trials[0].status == "ok"


REFUSED = {"tuning": ((), "quick"), "verifying": (("--verify",), "none")}


@pytest.mark.parametrize(("options", "effort"), REFUSED.values(), ids=REFUSED)
def test_a_generation_ends_at_its_start(
    generate: Generate, client: TargetClient, options: tuple[str, ...], effort: str
) -> None:
    measured = client.status().requests.get("profile", 0)
    ran = generate(*options, effort=effort)
    assert ran.code == 8
    told = f"runs no contexts, which tuning and --verify need: {WHY}; or use --tuning_effort none without --verify"
    assert [line for line in ran.err.splitlines() if "error" in line] == [
        f"error: {client.address} {told} [no_contexts]"
    ]
    assert client.status().requests.get("profile", 0) == measured
    assert not ran.context.exists()


def test_what_is_not_tuned_is_written_and_does_not_run_there(generate: Generate, client: TargetClient) -> None:
    ran = generate()
    assert ran.code == 0, ran.err
    with pytest.raises(TargetError) as refused:
        client.load_context(ran.context.read_bytes(), "", strict=False)
    assert (refused.value.name, refused.value.reason) == ("no_contexts", f"target {client.address}: {WHY}")
