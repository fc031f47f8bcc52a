"""Provide a client of a fake target, and its requests."""

from typing import Any

from gputune.client.target.client import TargetClient
from gputune.client.target.reconnecting import Reconnecting
from gputune.client.target.transport.target_connection import dial
from gputune.core.batches import ProfileKernel
from gputune.core.launches import Launch, Variant, Work
from tests.client.fake_target import FakeTarget


def connect(target: FakeTarget, notice: Any = None, seconds: float = 20) -> TargetClient:
    return TargetClient(Reconnecting(lambda: dial("127.0.0.1", target.port), notice=notice, seconds=seconds))


def measuring_request(buffer: int, reference: int, variants: int = 1) -> ProfileKernel:
    source = "the text"
    launch = Launch(source, "entry", "", (1,), (1,), ("input", "output"))
    return ProfileKernel(
        task="a task",
        buffers={"input": buffer},
        output_bytes=4,
        reference=reference,
        relative=0.0,
        absolute=0.0,
        dtype="float32",
        variants=tuple(Variant({"N": number}, (), launch, {}, number=number) for number in range(variants)),
        baseline=None,
        best_ns=0.0,
        work=Work(1, 1),
        samples=3,
        sample_ns=1,
        warm_up_ns=1,
        cold=False,
        together=True,
        harvest=True,
    )
