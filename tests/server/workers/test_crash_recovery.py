"""Test the conclusions from dead workers, without any worker."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.launches import Trial
from gputune.server.protocol.messages import Progress
from gputune.server.workers.crash_recovery import Batch, Death, Missed
from tests.server.conftest import batch_of

Make = Callable[..., ProfileKernel]
SEGFAULT = Death("SIGSEGV", "launching", 0)
HANG = Death("SIGKILL", "launching", 0, missed=Missed("launching", "launch_seconds", 30))
SLOW_BUILD = replace(HANG, step="starting", missed=Missed("starting", "compile_seconds", 120.0))
SCALED = replace(HANG, missed=Missed("launching", "launch_seconds", 1.5, scaled=True))
KILLED = Death("SIGKILL", "measuring", 0, killed=True)
UNKNOWN = Death("SIGSEGV", None, None)


def trial(status: Any = "ok") -> Trial:
    return Trial(status, "", (), (), 0, 0, {})


@pytest.fixture
def request_of_four() -> ProfileKernel:
    return batch_of(1, 2, ("-D0", "-D1", "-D2", "-D3"), together=False)


def reply(count: int, best: int | None = 0) -> Profiled:
    return Profiled((trial(),) * count, best, b"binary", None, {"build": 1, "verify": 2, "measure": 3}, {})


def configurations(request: ProfileKernel | None) -> list[int]:
    assert request is not None
    return [variant.configuration["N"] for variant in request.variants]


def test_a_batch_that_nothing_happens_to_comes_back_as_it_is(request_of_four: ProfileKernel) -> None:
    batch = Batch(request_of_four)
    assert batch.remaining() == request_of_four
    result = batch.result(reply(4, best=2), recover_ns=5)
    assert (result.best, result.binary, len(result.trials)) == (2, b"binary", 4)
    assert result.spent_ns == {"build": 1, "verify": 2, "measure": 3, "recover": 5}


@pytest.mark.parametrize(
    ("death", "status", "message"),
    [
        (SEGFAULT, "crash", "the worker ended with SIGSEGV while launching"),
        (replace(SEGFAULT, how="exit code 3", step="building"), "crash", "ended with exit code 3 while building"),
        (HANG, "timeout", "launching took longer than 30 s (limit launch_seconds)"),
        (SLOW_BUILD, "timeout", "starting took longer than 120 s (limit compile_seconds)"),
        (SCALED, "timeout", "launching took longer than 1.5 s (3x the fastest, at least 1.5 s)"),
    ],
)
def test_the_culprit_gets_its_trial_and_the_rest_goes_on(
    request_of_four: ProfileKernel, death: Death, status: str, message: str
) -> None:
    batch = Batch(request_of_four)
    batch.remaining()
    told = batch.lost(replace(death, variant=2))
    assert told is not None and told.trial is not None
    assert (told.phase, told.done, told.total, told.variant) == ("recovering", 1, 4, 2)
    assert configurations(batch.remaining()) == [0, 1, 3]
    result = batch.result(reply(3, best=3), 0)
    assert [one.status for one in result.trials] == ["ok", "ok", status, "ok"]
    assert result.best == 3
    assert message in result.trials[2].message


@pytest.mark.parametrize("death", [replace(SEGFAULT, step="building"), SLOW_BUILD, replace(KILLED, step="starting")])
def test_nobody_is_blamed_for_what_is_compiled_with_the_code_of_others(
    request_of_four: ProfileKernel, death: Death
) -> None:
    batch = Batch(replace(request_of_four, together=True))
    first = batch.remaining()
    assert first is not None and first.together
    told = batch.lost(replace(death, variant=2))
    assert told is not None and told.trial is None
    alone = batch.remaining()
    assert alone == replace(first, together=False)
    for _ in range(3):  # that it has happened before is held against nobody
        batch.lost(replace(death, variant=2))
    assert configurations(batch.remaining()) == [0, 1, 3]


def test_who_dies_of_its_own_code_is_blamed_in_company_too(request_of_four: ProfileKernel) -> None:
    batch = Batch(replace(request_of_four, together=True))
    batch.remaining()
    told = batch.lost(replace(SEGFAULT, variant=2))
    assert told is not None and told.trial is not None
    left = batch.remaining()
    assert left is not None and left.together and configurations(left) == [0, 1, 3]


def test_variants_keep_their_numbers_in_a_second_attempt(request_of_four: ProfileKernel) -> None:
    batch = Batch(request_of_four)
    batch.remaining()
    batch.lost(replace(SEGFAULT, variant=1))
    batch.remaining()
    told = batch.progress(Progress("building", 2, 3, "", 2, trial("correctness")))
    assert (told.done, told.total, told.variant) == (3, 4, 2)
    batch.lost(replace(HANG, variant=3))
    assert configurations(batch.remaining()) == [0]
    assert [one.status for one in batch.result(reply(1), 0).trials] == ["ok", "crash", "correctness", "timeout"]


def test_what_is_said_of_a_variant_that_was_not_asked_for_is_left_out(request_of_four: ProfileKernel) -> None:
    batch = Batch(request_of_four)
    batch.remaining()
    batch.lost(replace(SEGFAULT, variant=1))
    batch.remaining()
    told = batch.progress(Progress("building", 1, 3, "", 1, trial("correctness")))
    assert (told.variant, told.trial) == (None, None)


def test_a_variant_that_was_only_proven_is_measured_again(request_of_four: ProfileKernel) -> None:
    batch = Batch(request_of_four)
    batch.remaining()
    batch.progress(Progress("building", 1, 4, "", 0, trial("ok")))
    batch.lost(replace(SEGFAULT, variant=1))
    assert configurations(batch.remaining()) == [0, 2, 3]


def test_a_kill_from_outside_is_proof_the_third_time_only(request_of_four: ProfileKernel) -> None:
    batch = Batch(request_of_four)
    batch.remaining()
    told = batch.lost(replace(KILLED, variant=1))
    assert told is not None and told.trial is None
    assert configurations(batch.remaining()) == [0, 1, 2, 3]
    batch.lost(replace(KILLED, variant=3))  # another one is not to blame for the first
    assert configurations(batch.remaining()) == [0, 1, 2, 3]
    batch.lost(replace(KILLED, variant=1))  # chance may do that twice
    assert configurations(batch.remaining()) == [0, 1, 2, 3]
    batch.lost(replace(KILLED, variant=1))
    assert configurations(batch.remaining()) == [0, 2, 3]
    assert "SIGKILL while measuring" in batch.result(reply(3), 0).trials[1].message


def test_a_death_that_nobody_is_to_blame_for_ends_the_batch_the_second_time(request_of_four: ProfileKernel) -> None:
    batch = Batch(request_of_four)
    batch.remaining()
    assert batch.lost(UNKNOWN) is not None
    assert configurations(batch.remaining()) == [0, 1, 2, 3]
    assert batch.lost(UNKNOWN) is None
    assert UNKNOWN.error.name == "worker_died"
    late = replace(HANG, variant=None).error
    assert (late.name, late.details) == ("worker_timeout", {"limit": "launch_seconds", "allowed": 30})


def test_a_page_full_of_nonsense_blames_nobody(request_of_four: ProfileKernel) -> None:
    batch = Batch(request_of_four)
    batch.remaining()
    told = batch.lost(replace(SEGFAULT, variant=10**9))
    assert told is not None and told.trial is None
    assert configurations(batch.remaining()) == [0, 1, 2, 3]


def test_who_dies_where_another_one_may_have_done_the_damage_is_tried_once_more(request_of_four: ProfileKernel) -> None:
    for step in ("building", "checking", "preparing"):
        batch = Batch(request_of_four)
        batch.remaining()
        batch.progress(Progress("building", 1, 4, "", 0, trial()))
        told = batch.lost(replace(SEGFAULT, step=step, variant=2))
        assert told is not None and told.trial is None
        assert configurations(batch.remaining()) == [2, 0, 1, 3]  # before the others can do it again
        batch.lost(replace(SEGFAULT, step=step, variant=2))
        assert configurations(batch.remaining()) == [0, 1, 3]
        assert batch.result(reply(3), 0).trials[2].status == "crash"


@pytest.mark.parametrize(("fresh", "baseline"), [(False, False), (True, True)])
def test_what_ran_before_the_batch_or_is_the_baseline_may_have_done_it_too(
    request_of_four: ProfileKernel, fresh: bool, baseline: bool
) -> None:
    other = replace(request_of_four.variants[0], configuration={"N": 9}, number=9)
    batch = Batch(replace(request_of_four, baseline=other if baseline else None))
    batch.remaining()
    told = batch.lost(replace(SEGFAULT, step="building"), fresh)
    assert told is not None and told.trial is None


def test_a_request_without_time_is_not_tried_again(request_of_four: ProfileKernel) -> None:
    death = replace(HANG, variant=None, missed=Missed(None, "total_seconds", 3600))
    batch = Batch(request_of_four)
    batch.remaining()
    assert batch.lost(death) is None
    assert death.error.message == "the request took longer than 3600 s (limit total_seconds)"


def test_a_baseline_that_crashes_is_left_out(request_of_four: ProfileKernel) -> None:
    baseline = replace(request_of_four.variants[0], configuration={"N": 9}, number=9)
    batch = Batch(replace(request_of_four, baseline=baseline))
    batch.remaining()
    batch.lost(replace(SEGFAULT, variant=3))
    second = batch.remaining()
    assert second is not None and second.baseline == baseline
    told = batch.lost(replace(SEGFAULT, variant=9))
    assert told is not None and told.trial is None
    third = batch.remaining()
    assert third is not None and third.baseline is None
    assert configurations(third) == [0, 1, 2]
    assert batch.result(reply(3), 0).baseline is None


def test_a_baseline_that_is_a_variant_goes_with_it(request_of_four: ProfileKernel) -> None:
    batch = Batch(replace(request_of_four, baseline=request_of_four.variants[1]))
    batch.remaining()
    batch.lost(replace(SEGFAULT, variant=1))
    second = batch.remaining()
    assert second is not None and second.baseline is None


def test_a_baseline_that_is_a_variant_which_does_not_work_is_not_measured_again(request_of_four: ProfileKernel) -> None:
    batch = Batch(replace(request_of_four, baseline=request_of_four.variants[1]))
    batch.remaining()
    batch.progress(Progress("building", 1, 4, "", 1, trial("correctness")))
    batch.lost(replace(SEGFAULT, variant=3))
    second = batch.remaining()
    assert second is not None and second.baseline is None


def test_a_batch_of_nothing_but_failures_needs_no_worker() -> None:
    batch = Batch(batch_of(1, 2))
    batch.remaining()
    batch.lost(SEGFAULT)
    assert batch.remaining() is None
    result = batch.result(None, 7)
    assert [one.status for one in result.trials] == ["crash"]
    assert (result.best, result.binary, result.spent_ns["recover"]) == (None, b"", 7)


@pytest.mark.parametrize("wrong", [reply(3), reply(5), reply(4, best=4)])
def test_a_reply_that_makes_no_sense_is_refused(request_of_four: ProfileKernel, wrong: Profiled) -> None:
    batch = Batch(request_of_four)
    batch.remaining()
    with pytest.raises(ValueError):
        batch.result(wrong, 0)
