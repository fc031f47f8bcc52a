"""Provide a client of a fake target, and its requests."""

from typing import Any

from gputune.client.target.client import TargetClient
from gputune.client.target.reconnecting import Reconnecting
from gputune.client.target.transport.target_connection import dial
from gputune.core.batches import ProfileKernel
from gputune.core.launches import Variant
from tests.client.fake_target import FakeTarget
from tests.server.conftest import batch_of, launch_of


def connect(target: FakeTarget, notice: Any = None, seconds: float = 20) -> TargetClient:
    return TargetClient(Reconnecting(lambda: dial("127.0.0.1", target.port), notice=notice, seconds=seconds))


def measuring_request(buffer: int, reference: int, variants: int = 1) -> ProfileKernel:
    launch = launch_of("the text")
    asked = tuple(Variant({"N": number}, (), launch, {}, number=number) for number in range(variants))
    return batch_of(buffer, reference, output_bytes=4, variants=asked)
