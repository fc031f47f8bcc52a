"""Test what a client can request of a server, on the null device."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.client.errors import TargetError
from gputune.client.target.client import TargetClient
from gputune.core.batches import Compiled, ProfileKernel
from gputune.core.launches import Variant
from gputune.runtime.devices.features import PROBES
from gputune.server.protocol.messages import (
    CompileKernel,
    ExecuteKernel,
)
from tests.server.conftest import batch_of, launch_of

Make = Callable[..., Any]


def test_the_welcome_names_device_limits_and_software(client: TargetClient) -> None:
    assert client.device["name"] == "null"
    assert client.device["max_work_item_sizes"] == [1024, 1024, 1024]
    assert client.limits.variants == 16
    assert client.limits.buffer_bytes == client.device["max_allocation_bytes"]
    assert client.server["backend"] == "null"
    assert client.server["settings"] == {}
    assert str(client.server["software"]).startswith("gputune")


def test_a_device_that_computes_nothing_has_no_feature(client: TargetClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert client.server["features"] == sorted(PROBES)
    before = client.requests["prove_features"]
    assert client.proven(["half", "sorcery"]) == frozenset()
    assert client.requests["prove_features"] == before + 1
    assert "the device does not have the feature half: the device computes nothing" in caplog.text


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


def test_a_freed_buffer_is_unknown(client: TargetClient) -> None:
    kept, freed = client.upload(b"kept"), client.upload(b"freed")
    client.free(freed)
    for call in (lambda: client.download(freed), lambda: client.free(kept, freed)):
        with pytest.raises(TargetError, match=f"no buffer {freed}") as caught:
            call()
        assert caught.value.name == "unknown_buffer"
        assert caught.value.details == {"buffer": freed}
    assert bytes(client.download(kept)) == b"kept"


def test_measuring(client: TargetClient) -> None:
    data, reference = client.upload(bytes(64)), client.upload(np.arange(16, dtype=np.float32))
    measured = client.measure_kernel(batch_of(data, reference, ("-DA", "-DB", "-DC")))
    assert [trial.status for trial in measured.trials] == ["ok"] * 3
    assert all(len(trial.samples_ns) == len(trial.wall_ns) == 3 for trial in measured.trials)
    medians = [sorted(trial.samples_ns)[1] for trial in measured.trials]
    assert measured.best == medians.index(min(medians))
    assert bytes(measured.binary).startswith(b"gputune-null")
    again = client.measure_kernel(batch_of(data, reference, ("-DA", "-DB", "-DC")))
    assert [trial.samples_ns for trial in again.trials] == [trial.samples_ns for trial in measured.trials]


def test_a_variant_that_fails_keeps_its_place_and_says_why(client: TargetClient) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(64))
    request: ProfileKernel = batch_of(data, reference, ("-DA", "-DB"))
    broken = replace(request.variants[0], main=replace(request.variants[0].main, local_size=(5,)))
    measured = client.measure_kernel(replace(request, variants=(broken, request.variants[1])))
    assert [trial.status for trial in measured.trials] == ["constraints", "ok"]
    assert "(5,) does not divide" in measured.trials[0].message
    assert measured.trials[0].samples_ns == ()
    assert measured.best == 1


def test_a_reference_of_another_size_is_refused(client: TargetClient) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(60))
    with pytest.raises(TargetError, match="the reference has 60 bytes, but output_bytes is 64"):
        client.measure_kernel(batch_of(data, reference))


def test_compile(client: TargetClient) -> None:
    variants = [Variant({}, (), launch_of(options=f"-DN={number}"), {}) for number in range(60)]
    compiled: dict[int, Compiled] = {}
    client.compile_kernels(
        [CompileKernel(each, {"input": 64, "output": 64}) for each in variants], compiled.__setitem__
    )
    assert sorted(compiled) == list(range(60))
    assert all(bytes(each.binary).startswith(b"gputune-null") for each in compiled.values())
    assert len({bytes(each.binary) for each in compiled.values()}) == 60


def test_execute_returns_the_outputs_asked_for(client: TargetClient) -> None:
    data = client.upload(bytes(64))
    outputs = client.execute_kernel(ExecuteKernel((launch_of(),), {"input": data}, {"output": 64, "b": 8}))
    assert {name: len(content) for name, content in outputs.items()} == {"output": 64, "b": 8}


def test_a_launch_that_fails_outside_of_measuring_is_an_error(client: TargetClient) -> None:
    data = client.upload(bytes(64))
    request = ExecuteKernel((launch_of(local_size=(3,)),), {"input": data}, {"output": 64})
    with pytest.raises(TargetError, match=r"\(3,\) does not divide") as caught:
        client.execute_kernel(request)
    assert caught.value.name == "launch_failed"
    assert caught.value.details == {"status": "constraints"}


def test_a_limit_is_refused_before_anything_is_sent(client: TargetClient) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(64))
    with pytest.raises(TargetError, match="asks for 17, the server's limit variants is 16") as caught:
        client.measure_kernel(batch_of(data, reference, tuple(f"-D{i}" for i in range(17))))
    assert caught.value.name == "limit_exceeded"
    assert client.requests["profile"] == 0


def test_the_server_checks_the_limits_itself(client: TargetClient, monkeypatch: pytest.MonkeyPatch) -> None:
    data, reference = client.upload(bytes(64)), client.upload(bytes(64))
    monkeypatch.setattr("gputune.client.target.client.check_limits", lambda request, limits: None)
    with pytest.raises(TargetError, match="the server's limit variants is 16"):
        client.measure_kernel(batch_of(data, reference, tuple(f"-D{i}" for i in range(17))))
    with pytest.raises(TargetError, match="the server's limit buffer_bytes is"):
        variant = Variant({}, (), batch_of(1, 1).variants[0].main, {"p": 1 << 39})
        client.compile_kernels([CompileKernel(variant, {})], lambda place, reply: None)
    assert bytes(client.download(data)) == bytes(64)  # the connection goes on
