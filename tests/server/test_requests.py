"""What a client can ask of a server, on the null device."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.client.target_client import TargetClient, TargetError
from gputune.server.protocol.messages import (
    CompileKernel,
    ExecuteKernel,
    Launch,
    Profiled,
    ProfileKernel,
    Trial,
    Variant,
    Welcome,
)

Make = Callable[..., Any]


def test_the_welcome_names_device_limits_and_software(client: TargetClient) -> None:
    assert client.device["name"] == "null"
    assert client.device["max_work_item_sizes"] == [1024, 1024, 1024]
    assert client.limits.variants == 16
    assert client.limits.buffer_bytes == client.device["max_allocation_bytes"]
    assert client.server["backend"] == "null"
    assert client.server["settings"] == {}
    assert str(client.server["software"]).startswith("gputune")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2],
        np.float32(7),
        np.zeros((1 << 20) + 3, np.uint8),
    ],
    ids=["matrix", "strided", "scalar", "large"],
)
def test_an_array_comes_back_in_c_order(client: TargetClient, array: Any) -> None:
    handle = client.upload(np.asarray(array))
    assert bytes(client.download(handle)) == np.asarray(array).tobytes()


def test_bytes_come_back_and_handles_differ(client: TargetClient) -> None:
    first, second = client.upload(b"first"), client.upload(bytearray(b"second"))
    assert first != second
    assert (bytes(client.download(first)), bytes(client.download(second))) == (b"first", b"second")


def test_a_freed_buffer_is_unknown(client: TargetClient) -> None:
    kept, freed = client.upload(b"kept"), client.upload(b"freed")
    client.free(freed)
    for call in (lambda: client.download(freed), lambda: client.free(kept, freed)):
        with pytest.raises(TargetError, match=f"no buffer {freed}") as caught:
            call()
        assert caught.value.name == "unknown_buffer"
        assert caught.value.details == {"buffer": freed}
    assert bytes(client.download(kept)) == b"kept"


def test_buffers_belong_to_their_connection(client: TargetClient, shared_server: Any) -> None:
    handle = client.upload(b"mine")
    with shared_server.connect() as other, pytest.raises(TargetError, match="unknown_buffer"):
        other.download(handle)
    assert bytes(client.download(handle)) == b"mine"


def test_profile(client: TargetClient, make_profile: Make) -> None:
    data, reference = client.upload(bytes(64)), client.upload(np.arange(16, dtype=np.float32))
    profiled = client.profile_kernel(make_profile(data, reference, ("-DA", "-DB", "-DC")))
    assert [trial.status for trial in profiled.trials] == ["ok"] * 3
    assert all(len(trial.samples_ns) == len(trial.wall_ns) == 3 for trial in profiled.trials)
    medians = [sorted(trial.samples_ns)[1] for trial in profiled.trials]
    assert profiled.best == medians.index(min(medians))
    assert bytes(profiled.binary).startswith(b"gputune-null")
    again = client.profile_kernel(make_profile(data, reference, ("-DA", "-DB", "-DC")))
    assert [trial.samples_ns for trial in again.trials] == [trial.samples_ns for trial in profiled.trials]


@pytest.mark.parametrize(
    ("trials", "best", "words"),
    [
        (1, 0, "1 trials for 2 variants"),
        (3, 0, "3 trials for 2 variants"),
        (2, 2, "the best of 2 variants is 2"),
        (2, -1, "the best of 2 variants is -1"),
        (2, 1, "the best of 2 variants is 1, which is none that is ok"),
    ],
)
def test_profiled_variants_that_make_no_sense_are_refused(
    client: TargetClient, make_profile: Make, monkeypatch: pytest.MonkeyPatch, trials: int, best: int, words: str
) -> None:
    ok, wrong = (Trial(status, "", (), (), 0, 0, {}) for status in ("ok", "runtime"))
    monkeypatch.setattr(client, "_ask", lambda message: Profiled((ok, wrong, ok)[:trials], best, b""))
    with pytest.raises(TargetError, match=words) as caught:
        client.profile_kernel(make_profile(1, 2, ("-DA", "-DB")))
    assert caught.value.name == "bad_message"


def test_a_device_without_an_identity_is_refused(client: TargetClient, monkeypatch: pytest.MonkeyPatch) -> None:
    welcome = Welcome(client.limits, {**client.device, "compute_units": "many"}, {})
    monkeypatch.setattr(client, "_receive", lambda: (0, welcome))
    with pytest.raises(TargetError, match="'compute_units' is 'many'") as caught:
        client._welcome()
    assert caught.value.name == "bad_message"


def test_a_variant_that_fails_keeps_its_place_and_says_why(client: TargetClient, make_profile: Make) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(64))
    request: ProfileKernel = make_profile(data, reference, ("-DA", "-DB"))
    broken = replace(request.variants[0], main=replace(request.variants[0].main, local_size=(5,)))
    profiled = client.profile_kernel(replace(request, variants=(broken, request.variants[1])))
    assert [trial.status for trial in profiled.trials] == ["constraints", "ok"]
    assert "(5,) does not divide" in profiled.trials[0].message
    assert profiled.trials[0].samples_ns == ()
    assert profiled.best == 1


def test_a_reference_of_another_size_is_refused(client: TargetClient, make_profile: Make) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(60))
    with pytest.raises(TargetError, match="the reference has 60 bytes, output_bytes is 64"):
        client.profile_kernel(make_profile(data, reference))


def test_compile(client: TargetClient, make_launch: Make) -> None:
    compiled = client.compile_kernel(CompileKernel(Variant({}, (), make_launch(), {}), {"input": 64, "output": 64}))
    assert bytes(compiled.binary).startswith(b"gputune-null")


def test_execute_returns_the_outputs_asked_for(client: TargetClient, make_launch: Make) -> None:
    data = client.upload(bytes(64))
    outputs = client.execute_kernel(ExecuteKernel((make_launch(),), {"input": data}, {"output": 64, "b": 8}))
    assert {name: len(content) for name, content in outputs.items()} == {"output": 64, "b": 8}


def test_a_launch_that_fails_outside_of_profiling_is_an_error(client: TargetClient, make_launch: Make) -> None:
    data = client.upload(bytes(64))
    request = ExecuteKernel((make_launch(local_size=(3,)),), {"input": data}, {"output": 64})
    with pytest.raises(TargetError, match=r"\(3,\) does not divide") as caught:
        client.execute_kernel(request)
    assert caught.value.name == "launch_failed"
    assert caught.value.details == {"status": "constraints"}


def test_requests_are_counted_by_kind(client: TargetClient, make_profile: Make) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(64))
    client.profile_kernel(make_profile(data, reference))
    client.free(data)
    assert client.requests == {"upload": 2, "profile": 1, "free": 1}


def sent_sources(client: TargetClient, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The source texts in each request that the client sends from now on."""
    sent: list[list[str]] = []
    send = client._connection.send

    def spy(message: Any, request_id: int = 0) -> list[memoryview]:
        launches: list[Launch] = [variant.main for variant in getattr(message, "variants", ())]
        sent.append([launch.source for launch in launches])
        return send(message, request_id)

    monkeypatch.setattr(client._connection, "send", spy)
    return sent


def test_a_source_travels_once(client: TargetClient, make_profile: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(64))
    sent = sent_sources(client, monkeypatch)
    for _ in range(2):
        assert client.profile_kernel(make_profile(data, reference, ("-DA", "-DB"))).best is not None
    assert [[bool(source) for source in sources] for sources in sent] == [[True, False], [False, False]]


def test_a_source_that_the_server_does_not_know_is_sent_again(
    client: TargetClient, make_profile: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(64))
    request = make_profile(data, reference)
    client._sent_sources.add(request.variants[0].main.source_sha256)  # as if it had been sent
    sent = sent_sources(client, monkeypatch)
    assert client.profile_kernel(request).best == 0
    assert [[bool(source) for source in sources] for sources in sent] == [[False], [True]]
    assert client.requests["profile"] == 2


def test_a_source_under_a_wrong_hash_is_refused(client: TargetClient, make_launch: Make) -> None:
    launch = replace(make_launch(), source_sha256="0" * 64)
    with pytest.raises(TargetError, match="source_sha256 is not"):
        client.execute_kernel(ExecuteKernel((launch,), {}, {"input": 4, "output": 4}))


def test_a_limit_is_refused_before_anything_is_sent(client: TargetClient, make_profile: Make) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(64))
    with pytest.raises(TargetError, match="asks for 17, the server's limit variants is 16") as caught:
        client.profile_kernel(make_profile(data, reference, tuple(f"-D{i}" for i in range(17))))
    assert caught.value.name == "limit_exceeded"
    assert client.requests["profile"] == 0


def test_the_server_checks_the_limits_itself(client: TargetClient, make_profile: Make) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(64))
    client.limits = replace(client.limits, variants=1000, buffer_bytes=1 << 40)
    with pytest.raises(TargetError, match="the server's limit variants is 16"):
        client.profile_kernel(make_profile(data, reference, tuple(f"-D{i}" for i in range(17))))
    with pytest.raises(TargetError, match="the server's limit buffer_bytes is"):
        client.compile_kernel(CompileKernel(Variant({}, (), make_profile(1, 1).variants[0].main, {"p": 1 << 39}), {}))
    assert bytes(client.download(data)) == bytes(64)  # the connection goes on
