"""Test sessions on the devices of a farm: shared work, lost devices, late devices, and their owners."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputune.client.errors import TargetError
from gputune.client.farm import pool as pool_module
from gputune.client.farm.engine import Announced, Call
from gputune.client.farm.farm_connection import FarmConnection
from gputune.client.farm.frames import ANSWERS, REQUESTS, from_bytes, to_bytes
from gputune.client.farm.hosts import device_host
from gputune.client.farm.hosts.device_host import DeviceHost
from gputune.client.farm.hosts.health import IN_A_ROW
from gputune.client.farm.local_engine import LocalEngine
from gputune.client.farm.pool import LOSSES, Pool
from gputune.client.generation.generator import GenerationRequest, generate
from gputune.client.model.model_files import ModelFile
from gputune.client.options.config import Config
from gputune.client.target.client import TargetClient
from gputune.client.tuning.search.effort import EFFORTS
from gputune.core.batches import Profiled
from gputune.core.launches import Trial
from gputune.server.protocol.messages import Progress
from tests.client import models
from tests.client.farm.conftest import MakeHost
from tests.server.conftest import batch_of
from tests.waiting import PATIENCE_SECONDS, becomes

TIER = "null-cu1"
one = pytest.mark.usefixtures("one_session")
by_hand = pytest.mark.usefixtures("spread_by_hand")


def names_of(clients: list[TargetClient]) -> list[str]:
    return sorted(client.address.removeprefix("farm device ") for client in clients)


def measured(client: TargetClient) -> str:
    """The status of a variant that is measured now."""
    values = np.arange(16, dtype=np.float32)
    handles = client.upload(values), client.upload(values)
    return client.measure_kernel(batch_of(*handles)).trials[0].status


def test_two_devices_share_the_tasks_of_a_model(engine: LocalEngine, make_host: MakeHost, tmp_path: Path) -> None:
    hosts = [make_host("a"), make_host("b")]
    for host in hosts:
        engine.add(host)
    model = models.save(models.residual_block(), tmp_path)
    request = GenerationRequest([ModelFile(model)], tmp_path / "m.bin", Config(), EFFORTS["quick"], tmp_path / "cache")
    with Pool(engine, "job") as pool:
        assert pool.tiers() == [TIER]
        summary = generate(request, {}, source=pool.group(TIER))
        first = generate(request, {}, source=pool.group(TIER))
    assert summary["totals"]["cache_hits"] == 0 and first["totals"]["cache_misses"] == 0
    counts = [host.report()["trials"] for host in hosts]
    assert all(counts) and sum(map(int, map(str, counts))) >= sum(
        sum(task["trials"].values()) for task in summary["tasks"]
    ), "a trial was counted at no device"
    assert [host.report()["job"] for host in hosts] == ["", ""], "the job keeps devices that it needs no more"


class Stuck:
    """A host that never comes to the end of a batch."""

    def __init__(self, host: DeviceHost) -> None:
        self._host = host
        self.begun, self.released = threading.Event(), threading.Event()
        self.batches = 0

    @property
    def announced(self) -> Announced:
        return self._host.announced

    def answer(self, call: Call, tell: Callable[[bytes], None]) -> bytes:
        if call.order == "ask" and b"ProfileKernel" in call.frame:
            self.batches += 1
            self.begun.set()
            self.released.wait(PATIENCE_SECONDS)
        return self._host.answer(call, lambda frame: None)

    def close(self) -> None:
        self.released.set()


@one
def test_a_batch_of_a_lost_device_is_measured_on_another_and_no_variant_blamed(
    engine: LocalEngine, make_host: MakeHost
) -> None:
    stuck = Stuck(make_host("a"))
    engine.add(stuck)
    with Pool(engine, "job") as pool:
        (client,) = pool.group(TIER).connect_all()
        statuses: list[str] = []
        thread = threading.Thread(target=lambda: statuses.append(measured(client)))
        thread.start()
        assert stuck.begun.wait(PATIENCE_SECONDS)
        engine.add(make_host("b"))
        engine.remove("a")
        thread.join(PATIENCE_SECONDS)
        stuck.released.set()
        assert (statuses, client.address) == (["ok"], "farm device b")


def test_two_sessions_of_a_device_measure_one_after_the_other(engine: LocalEngine, make_host: MakeHost) -> None:
    stuck = Stuck(make_host("a"))
    engine.add(stuck)
    with Pool(engine, "job") as pool:
        clients = pool.group(TIER).connect_all()
        assert names_of(list(clients)) == ["a", "a"]
        threads = [threading.Thread(target=measured, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        assert stuck.begun.wait(PATIENCE_SECONDS)
        assert becomes(lambda: all(client.requests["upload"] == 2 for client in clients))
        assert stuck.batches == 1, "a second batch is on its way to a device that is at work"
        stuck.released.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert stuck.batches == 2


@one
def test_a_late_device_gets_a_session_and_a_leaving_one_loses_its(engine: LocalEngine, make_host: MakeHost) -> None:
    engine.add(make_host("a"))
    with Pool(engine, "job") as pool:
        group = pool.group(TIER)
        clients = list(group.connect_all())
        assert group.arrived() is None
        engine.add(make_host("b"))
        late = group.arrived()
        assert late is not None
        clients.append(late)
        assert names_of(clients) == ["a", "b"]
        engine.call("a", Call("drain"))
        assert {measured(client) for client in clients} == {"ok"}
        assert names_of(clients) == ["b", "b"], "a device that is asked to leave gets another batch"
        engine.add(make_host("c"))
        assert becomes(lambda: (measured(clients[0]), measured(clients[1]), names_of(clients))[2] == ["b", "c"])


@one
def test_a_device_that_drains_is_not_usable_and_its_session_moves(engine: LocalEngine, make_host: MakeHost) -> None:
    engine.add(make_host("a"))
    with Pool(engine, "job") as pool:
        (client,) = pool.group(TIER).connect_all()
        engine.add(make_host("b"))
        assert list(pool.usable(TIER)) == ["a", "b"]
        engine.call("a", Call("drain"))
        assert list(pool.usable(TIER)) == ["b"]
        assert (measured(client), client.address) == ("ok", "farm device b")


@pytest.fixture
def opened(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices on which sessions were asked for, in order."""
    names, call = list[str](), engine.call

    def noted(name: str, asked: Call, *more: object) -> bytes:
        if asked.order == "open":
            names.append(name)
        return call(name, asked, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "call", noted)
    return names


@by_hand
def test_three_sessions_on_two_devices_stay_where_they_are(
    engine: LocalEngine, make_host: MakeHost, opened: list[str]
) -> None:
    """Moving one for a difference of one would go to and fro for ever."""
    engine.add(make_host("a"))
    with Pool(engine, "job") as pool:
        group = pool.group(TIER)
        clients = list(group.connect_all())
        engine.add(make_host("b"))
        late = group.arrived()
        assert late is not None
        clients.append(late)
        for _ in range(3):
            group.spread()
            assert [measured(client) for client in clients] == ["ok"] * 3
            assert (names_of(clients), opened) == (["a", "a", "b"],) * 2


@by_hand
def test_one_of_two_sessions_moves_once_to_a_device_without_any(
    engine: LocalEngine, make_host: MakeHost, opened: list[str]
) -> None:
    engine.add(make_host("a"))
    with Pool(engine, "job") as pool:
        group = pool.group(TIER)
        clients = list(group.connect_all())
        engine.add(make_host("b"))
        for _ in range(3):
            group.spread()
            assert [measured(client) for client in clients] == ["ok", "ok"]
            assert (names_of(clients), opened) == (["a", "b"], ["a", "a", "b"])


def test_sessions_stay_where_the_device_without_any_is_another_jobs(
    engine: LocalEngine, make_host: MakeHost, opened: list[str]
) -> None:
    for name in "ab":
        engine.add(make_host(name))
    other = FarmConnection(engine, "b", "other", threading.Lock())
    with Pool(engine, "job") as pool:
        group = pool.group(TIER)
        clients = list(group.connect_all())
        begun = list(opened)
        assert names_of(clients) == ["a", "a"]
        group._busy.clear()  # it is asked again after some time
        for _ in range(3):
            group.spread()
            assert [measured(client) for client in clients] == ["ok", "ok"]
            assert (names_of(clients), opened) == (["a", "a"], begun), "a session went away and came back"
        other.close()
        assert becomes(lambda: (measured(clients[0]), measured(clients[1]), names_of(clients))[2] == ["a", "b"])


def test_a_session_begins_nothing_when_no_time_is_left(engine: LocalEngine, make_host: MakeHost) -> None:
    engine.add(make_host("a"))
    with Pool(engine, "job") as pool:
        (client,) = list(pool.group(TIER).connect_all())[:1]
        with client.giving_up(lambda: True):
            with pytest.raises(TargetError) as raised:
                client.upload(b"1234")
            client.ping()
        assert raised.value.name == "cancelled"
        assert measured(client) == "ok", "and goes on with what has time"


def test_a_device_has_one_job_until_that_is_not_heard_of(
    engine: LocalEngine, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.add(make_host("a"))

    def opened(job: str) -> FarmConnection:
        return FarmConnection(engine, "a", job, threading.Lock())

    first = opened("one")
    with pytest.raises(TargetError, match=r"job one has the device.*device_busy"):
        opened("two")
    first.close()
    monkeypatch.setattr(device_host, "LEASE_SECONDS", -1.0)
    silent = opened("two")  # its client is gone without a word

    def free() -> bool:
        try:
            opened("three")
        except TargetError:
            return False
        return True

    assert becomes(free)
    with pytest.raises(TargetError, match="stopping"):
        silent.ask(batch_of(1, 1))


@one
def test_a_device_that_is_lost_with_each_of_five_attempts_is_told(engine: LocalEngine, make_host: MakeHost) -> None:
    """A variant that takes whole machines down is not measured for ever."""

    class Falling(Stuck):
        def answer(self, call: Call, tell: object) -> bytes:
            if call.order == "ask" and b"ProfileKernel" in call.frame:
                engine.remove(self.announced.name)
                engine.add(Falling(self._host))
                return b""
            return self._host.answer(call, lambda frame: None)

    engine.add(Falling(make_host("a")))
    with Pool(engine, "job") as pool:
        (client,) = pool.group(TIER).connect_all()
        with pytest.raises(TargetError, match="lost_again"):
            measured(client)


@one
def test_devices_that_are_lost_with_different_batches_are_the_doing_of_none(
    engine: LocalEngine, make_host: MakeHost
) -> None:
    class Tripping(Stuck):
        """Is lost with every second batch."""

        batches = 0

        def answer(self, call: Call, tell: object) -> bytes:
            if call.order == "ask" and b"ProfileKernel" in call.frame:
                Tripping.batches += 1
                if Tripping.batches % 2:
                    engine.remove(self.announced.name)
                    engine.add(Tripping(self._host))
                    return b""
            return self._host.answer(call, lambda frame: None)

    engine.add(Tripping(make_host("a")))
    with Pool(engine, "job") as pool:
        (client,) = pool.group(TIER).connect_all()
        assert {measured(client) for _ in range(2 * LOSSES)} == {"ok"}
    assert Tripping.batches == 4 * LOSSES


@one
def test_a_failure_is_told_before_its_batch_ends_and_not_measured_again_when_the_device_is_lost(
    engine: LocalEngine, make_host: MakeHost
) -> None:
    asked: list[list[int]] = []

    class Telling(Stuck):
        """Tells that variant 1 has failed, and is lost."""

        def answer(self, call: Call, tell: Callable[[bytes], None]) -> bytes:
            if call.order != "ask" or b"ProfileKernel" not in call.frame:
                return self._host.answer(call, tell)
            number, request = from_bytes(call.frame, REQUESTS)
            asked.append([variant.number for variant in request.variants])
            if len(asked) > 1:
                return self._host.answer(call, tell)
            tell(to_bytes(Progress("building", 1, 3, "", 1, Trial("compile", "no such type")), number))
            assert heard.wait(PATIENCE_SECONDS), "a failure is told when its batch has ended"
            engine.remove("a")
            engine.add(Telling(make_host("b")))
            return b""

    engine.add(Telling(make_host("a")))
    heard, told = threading.Event(), list[int | None]()

    def hear(progress: Progress) -> None:
        if progress.trial is not None and progress.trial.status != "ok":
            told.append(progress.variant)
            heard.set()

    with Pool(engine, "job") as pool:
        (client,) = pool.group(TIER).connect_all()
        values = client.upload(np.arange(16, dtype=np.float32))
        request = batch_of(values, values)
        variants = tuple(replace(request.variants[0], number=number) for number in range(3))
        trials = client.measure_kernel(replace(request, variants=variants), hear).trials
    assert ([trial.status for trial in trials], told, asked) == (["ok", "compile", "ok"], [1], [[0, 1, 2], [0, 2]])


def test_a_session_that_idled_when_its_server_was_lost_is_not_said_to_have_ended_it(make_host: MakeHost) -> None:
    host = make_host("a")
    engine = LocalEngine([host])
    first, other = (FarmConnection(engine, "a", "job", threading.Lock()) for _ in range(2))
    host._sessions[first._session].connection.hang_up()  # as if the server had gone during a batch
    with pytest.raises(TargetError, match="connection_lost"):
        first.ask(batch_of(1, 1))
    with pytest.raises(TargetError, match="stopping"):
        other.ask(batch_of(1, 1))


def test_a_device_that_is_unlike_most_others_is_set_apart_until_it_has_joined_again(
    engine: LocalEngine, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {name: replace(make_host(name).announced, name=name) for name in "abc"}
    there["a"] = replace(there["a"], device={**there["a"].device, "driver_version": "older"})
    monkeypatch.setattr(engine, "devices", lambda: there)
    with Pool(engine, "job") as pool:
        assert list(pool.usable(TIER)) == ["b", "c"]
        assert "driver_version" in pool.excluded["a"]
        mended = replace(there["b"], name="a")
        del there["a"]
        assert becomes(lambda: not pool.excluded)
        there["a"] = mended
        assert list(pool.usable(TIER)) == ["a", "b", "c"]


def test_a_device_that_does_not_answer_costs_the_others_no_lease(
    engine: LocalEngine, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, renewed, call = threading.Event(), set(), engine.call

    def hung(name: str, asked: Call, *more: object) -> bytes:
        if asked.order == "renew" and name == "a":
            stuck.wait(PATIENCE_SECONDS)
        elif asked.order == "renew":
            renewed.add(name)
        return call(name, asked, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "call", hung)
    monkeypatch.setattr(pool_module, "RENEW_SECONDS", 0.0)
    for name in "ab":
        engine.add(make_host(name))
    with Pool(engine, "job") as pool:
        pool.group(TIER).connect_all()
        assert becomes(lambda: renewed == {"b"})
        stuck.set()


class Slow(Stuck):
    """A host whose device takes half as long again as its server says."""

    def answer(self, call: Call, tell: object) -> bytes:
        answer = self._host.answer(call, lambda frame: None)
        number, reply = from_bytes(answer, ANSWERS)
        if not isinstance(reply, Profiled) or reply.baseline is None:
            return answer
        samples = tuple(1.5 * sample for sample in reply.baseline.samples_ns)
        return to_bytes(replace(reply, baseline=replace(reply.baseline, samples_ns=samples)), number)


@one
def test_a_device_whose_default_takes_longer_than_on_its_twins_three_times_is_set_apart(
    engine: LocalEngine, make_host: MakeHost
) -> None:
    engine.add(Slow(make_host("a")))
    engine.add(make_host("b"))
    engine.add(make_host("c"))
    values = np.arange(16, dtype=np.float32)
    with Pool(engine, "job") as pool:
        clients = {client.address.removeprefix("farm device "): client for client in pool.group(TIER).connect_all()}

        def batch(name: str, task: str = "copy") -> None:
            request = batch_of(clients[name].upload(values), clients[name].upload(values))
            clients[name].measure_kernel(replace(request, baseline=request.variants[0], task=task))

        for _ in range(IN_A_ROW):
            batch("a", "what no twin has measured")
            batch("b", "what one twin has measured")
            batch("a", "what one twin has measured")
        batch("b")
        batch("c")
        for _ in range(IN_A_ROW):
            assert not pool.excluded
            batch("a")
        assert list(pool.excluded) == ["a"]
        assert "the default of a batch takes 50% more time than on its twins" in pool.excluded["a"]
        assert list(pool.usable(TIER)) == ["b", "c"]
        assert measured(clients["a"]) == "ok"
        assert names_of(list(clients.values())) == ["b", "b", "c"]


def test_a_lost_device_does_not_count_where_only_so_many_may_be_used(engine: LocalEngine, make_host: MakeHost) -> None:
    for name in "ab":
        engine.add(make_host(name))
    with Pool(engine, "job", count=1) as pool:
        clients = pool.group(TIER).connect_all()
        assert names_of(list(clients)) == ["a", "a"]
        engine.remove("a")  # of which the second session does not hear
        assert measured(clients[0]) == "ok"
        assert clients[0].address == "farm device b"
