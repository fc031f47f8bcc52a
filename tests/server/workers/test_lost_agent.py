"""Test what people are told about a worker that has lost its agent."""

import asyncio
import signal
from typing import Any

import pytest

from gputune.core.batches import Compiled, ProfileKernel
from gputune.server.protocol.messages import CompileKernel
from gputune.server.worker.link import AGENT_LOST
from gputune.server.workers.process import OnProgress

from .fake_worker import FakeWorker, Stage, dies, hits, works
from .test_supervisor import batch, statuses

__all__ = ["batch"]

AGENT = "agent:board.local:22598"
GONE = f"{AGENT} ended, or the connection to it, while launching; waiting for it for 30 s"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (AGENT_LOST, [f"{GONE}; what it worked on is tried again", f"{AGENT} is back"]),
        (-signal.SIGKILL, ["the worker ended with SIGKILL while launching; what it worked on is tried again"]),
    ],
)
async def test_a_lost_agent_is_named_and_so_is_its_return(batch: ProfileKernel, code: int, told: list[str]) -> None:
    stage = Stage(hits(1, dies(code)), works, agent=AGENT)
    assert statuses(await stage.run(batch)) == ["ok", "ok", "ok"]
    assert [(one.phase, one.message) for one in stage.told] == [("recovering", each) for each in told]


async def test_a_lost_agent_is_named_whatever_was_asked_of_it(batch: ProfileKernel) -> None:
    async def loses(worker: FakeWorker, message: Any, progress: OnProgress) -> Any:
        worker.page.begin("launching", None, 30)
        worker.die(AGENT_LOST)
        await asyncio.sleep(60)

    request = CompileKernel(batch.variants[0], {})
    stage = Stage(loses, works, agent=AGENT)
    assert await stage.run(request) == Compiled(b"binary", 1, 1)
    told = [one.message for one in stage.told]
    assert told == [f"{GONE}; the request is tried once more", f"{AGENT} is back"]
    stage = Stage(loses, None, agent=AGENT)
    assert (await stage.run(request)).name == "device_unavailable"
    assert [one.message for one in stage.told] == told[:1]
