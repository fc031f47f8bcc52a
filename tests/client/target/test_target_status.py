"""Test what a server's report becomes, and a real server on the null device that sends it."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gputune.client.doctor import diagnosis
from gputune.client.doctor.findings import Finding
from gputune.client.target.status import describe, lines_of
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import PROTOCOL_VERSION, StatusReport
from tests.client.commands import Gputune
from tests.client.contexts import DEVICE
from tests.shared_server import SharedServer


def report(**fields: Any) -> StatusReport:
    values: dict[str, Any] = {
        "software": "gputune 7", "device": DEVICE, "uptime_seconds": 93784.0, "clients": 2, "queued": 1,
        "running": "profile", "worker_restarts": 0, "last_restart": "", "requests": {"profile": 12, "ping": 0},
        "memory_bytes": 3 << 20, "state": {"load": 0.51234, "idle_seconds": 77.0},
    }  # fmt: skip
    return StatusReport(**{**values, **fields})


def described(**fields: Any) -> dict[str, Any]:
    client: Any = SimpleNamespace(
        address="board:22598",
        device=DEVICE,
        server={"backend": "null"},
        limits=Limits(total_bytes=8 << 30),
        status=lambda: report(**fields),
    )
    return describe(client)


def test_a_status_is_told_in_lines() -> None:
    text = "\n".join(lines_of(described()))
    for words in (
        f"board:22598: gputune 7, protocol {PROTOCOL_VERSION}, up 1 d 2 h", "tier     null-cu1",
        "clients  2; running: profile; 1 request waiting",
        "worker   never started again\n", "3.0 MiB", "answered 12 profile\n", "load 0.5123",
    ):  # fmt: skip
        assert words in text
    assert "idle_seconds" not in text, "a count says nothing by itself"
    again = "\n".join(
        lines_of(described(worker_restarts=1, last_restart="SIGSEGV while launching", running="", queued=0))
    )
    assert "started again 1 time, last because SIGSEGV while launching" in again
    assert "running: nothing; 0 requests waiting" in again
    assert "contexts" not in again
    without = described()
    without["server"]["no_contexts"] = "there is no C compiler"
    assert lines_of(without)[-1] == "contexts do not run: there is no C compiler"


def test_a_server_tells_its_status(
    gputune: Gputune, null_target: tuple[object, ...], null_server: SharedServer
) -> None:
    ran = gputune("target-status", *null_target)
    assert ran.code == 0, ran.err
    assert f"{null_target[1]}: gputune" in ran.out
    ran = gputune("target-status", *null_target, "--json")
    status = json.loads(ran.out)
    assert (status["tier"], status["worker_restarts"]) == ("null-cu1", 0) and status["clients"] > 0
    assert status["limits"]["requests"] > 0
    assert null_server.token not in ran.out


def test_a_server_is_not_told_without_its_token(gputune: Gputune, null_target: tuple[object, ...]) -> None:
    ran = gputune("target-status", *null_target[:2])
    assert (ran.code, ran.out) == (4, "")
    assert "[token_required]" in ran.last_line


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, False])
def test_the_doctor_of_a_server_finds_no_problem_but_a_missing_token(
    gputune: Gputune, null_server: SharedServer, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    monkeypatch.setenv("GPUTUNE_TOKEN", null_server.token if given else "")
    monkeypatch.setattr(diagnosis, "check_onnxruntime", lambda: Finding("software", "note", "it is not installed"))
    ran = gputune("doctor", "--target", f"{null_server.host}:{null_server.port}")
    if given:
        assert ran.code == 0 and "its device is null" in ran.out, ran.out
    else:
        assert ran.code == 4 and "PROBLEM  " in ran.out and "[token_required]" in ran.out
    assert null_server.token not in ran.out + ran.err
