"""Test that every limit is checked against a request, and named in the error."""

import time
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import pytest

from gputune.core.batches import ProfileKernel
from gputune.core.launches import Variant
from gputune.server.protocol import codec
from gputune.server.protocol.amounts import check_limits
from gputune.server.protocol.errors import ProtocolError, RemoteProtocolError
from gputune.server.protocol.launches import launches_of, with_launches
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    FROM_CLIENT,
    CompileKernel,
    ExecuteContext,
    ExecuteKernel,
    FreeBuffers,
    FreeContexts,
    FreeStates,
    ProfileContext,
    ReadState,
    UploadBuffer,
)

from .full import full_headers

TIGHT = Limits(  # what the example messages need
    source_bytes=46,
    variants=2,
    samples=7,
    buffer_bytes=4096,
    launches=1,
    buffers=2,
    contexts=1,
    states=2,
    inferences=20,
)


@pytest.fixture
def by_kind(examples: list[Any]) -> dict[type, Any]:
    return {type(message): message for message in examples}


def test_the_examples_are_just_within_tight_limits(examples: list[Any]) -> None:
    for message in examples:
        check_limits(message, TIGHT)


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (ProfileKernel, "source_bytes"),
        (ProfileKernel, "variants"),
        (ProfileKernel, "samples"),
        (ProfileKernel, "buffer_bytes"),
        (ProfileKernel, "launches"),
        (ProfileContext, "inferences"),
        (FreeBuffers, "buffers"),
        (FreeContexts, "contexts"),
        (FreeStates, "states"),
        (ReadState, "buffer_bytes"),
    ],
)
def test_one_less_is_refused_by_name(kind: type, limit: str, by_kind: dict[type, Any]) -> None:
    allowed = getattr(TIGHT, limit) - 1
    with pytest.raises(ProtocolError, match=f"the server's limit {limit} is {allowed}") as caught:
        check_limits(by_kind[kind], replace(TIGHT, **{limit: allowed}))
    assert caught.value.name == "limit_exceeded"
    assert caught.value.details == {"limit": limit, "allowed": allowed, "got": allowed + 1}


def test_every_size_in_every_request_is_checked(by_kind: dict[type, Any]) -> None:
    small = replace(TIGHT, buffer_bytes=255)
    variant: Variant = by_kind[CompileKernel].variant
    execute: ExecuteKernel = by_kind[ExecuteKernel]
    for request in (
        UploadBuffer(bytes(256)),
        CompileKernel(variant, {}),
        CompileKernel(replace(variant, packed={}), {"input": 256}),
        replace(by_kind[ProfileKernel], output_bytes=0),
        replace(by_kind[ProfileKernel], output_bytes=256, variants=(replace(variant, packed={}),)),
        replace(by_kind[ProfileKernel], output_bytes=0, variants=(), baseline=variant),
        replace(execute, outputs={"a": 128, "b": 128}),
        ExecuteContext(1, {"a": bytes(128), "b": bytes(128)}),
        ProfileContext(1, {"a": memoryview(bytes(256)).cast("i")}, 1, "basic"),
    ):
        with pytest.raises(ProtocolError, match="buffer_bytes"):
            check_limits(request, small)
    long_source = replace(variant, main=replace(variant.main, source="x" * 47))
    with pytest.raises(ProtocolError, match="source_bytes"):
        check_limits(replace(by_kind[ProfileKernel], baseline=long_source), TIGHT)
    with pytest.raises(ProtocolError, match="launches"):
        check_limits(replace(execute, launches=execute.launches * 2), TIGHT)


@pytest.mark.parametrize("kind", full_headers())
def test_a_full_header_is_read_or_refused_in_little_time(kind: str) -> None:
    parts = full_headers()[kind]()
    assert len(parts.header) <= Limits().header_bytes
    began = time.thread_time()
    with suppress(RemoteProtocolError):
        request = codec.unpack(parts.header, parts.blobs, codec.registry(FROM_CLIENT), Limits())[1]
        with suppress(ProtocolError):
            check_limits(request, Limits())
    assert time.thread_time() - began < 4.0  # about 0.1 s on a machine that has nothing else to do


def test_limits_are_counts(examples: list[Any]) -> None:
    assert all(getattr(Limits(), item.name) > 0 for item in fields(Limits))


@pytest.mark.parametrize("name", ["warm_up_ns", "sample_ns"])
def test_nothing_is_warmed_up_or_sampled_for_longer_than_a_launch_may_take(name: str, by_kind: dict[type, Any]) -> None:
    limits = replace(TIGHT, launch_seconds=2)
    check_limits(replace(by_kind[ProfileKernel], **{name: 2 * 10**9}), limits)
    with pytest.raises(ProtocolError) as caught:
        check_limits(replace(by_kind[ProfileKernel], **{name: 2 * 10**9 + 1}), limits)
    assert caught.value.details == {"limit": "launch_seconds", "allowed": 2, "got": 3}


def test_launches_are_visited_in_one_order(examples: list[Any]) -> None:
    for message in examples:
        seen: list[Any] = []
        same = with_launches(message, lambda launch, seen=seen: seen.append(launch) or launch)  # type: ignore[misc]
        assert same == message
        assert seen == list(launches_of(message))
        changed = with_launches(message, lambda launch: replace(launch, source=""))
        assert all(launch.source == "" for launch in launches_of(changed))
        assert len(list(launches_of(changed))) == len(seen)
