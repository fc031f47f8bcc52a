"""Test how the wall time of a generation is divided, by a clock that the test moves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gputune.client.errors import TargetError
from gputune.client.tuning.budget import SHARES, Budget, OutOfTime


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Patient:
    """A target that hears when it is to give up."""

    over: Callable[[], bool] | None = None

    @contextmanager
    def giving_up(self, over: Callable[[], bool]) -> Iterator[None]:
        self.over = over
        yield
        self.over = None


def test_a_share_is_what_is_left_before_the_next_one_must_begin() -> None:
    clock = Clock()
    budget = Budget(60.0, clock)
    assert [budget.left(share) for share in SHARES] == [60.0] * len(SHARES)
    budget.keep("finalizing", 10.0)
    budget.keep("comparing", 20.0)
    budget.keep("comparing", 15.0)
    left = {share: budget.left(share) for share in SHARES}
    assert (left["tuning"], left["estimating"], left["comparing"], left["finalizing"]) == (35.0, 35.0, 50.0, 60.0)
    clock.now += 40.0
    assert budget.is_over("tuning") and not budget.is_over("comparing")
    assert (budget.limit("comparing"), budget.limit("tuning")) == (10.0, 0.0)
    with budget.paused():
        clock.now += 1000.0
    assert budget.left("comparing") == 10.0, "what is waited for on purpose does not count"


def test_several_graphs_get_equal_parts_of_what_is_left() -> None:
    clock = Clock()
    budget = Budget(100.0, clock)
    budget.keep("finalizing", 10.0)
    budget.keep("comparing", 60.0)
    budget.divide(3)
    assert (budget.left("comparing"), budget.left("estimating"), budget.left("other graphs")) == (30.0, 15.0, 90.0)
    clock.now += 20.0
    budget.divide(2)
    assert budget.left("comparing") == 35.0, "what the first has left is there for the others"
    budget.divide(1)
    assert budget.left("comparing") == budget.left("other graphs") == 70.0


def test_without_a_limit_nothing_is_ever_over() -> None:
    budget = Budget()
    budget.keep("finalizing", 1e9)
    budget.divide(2)
    assert not budget.limited and not any(map(budget.is_over, SHARES)) and budget.limit("tuning") is None
    target = Patient()
    with budget.bounding(target, "tuning"):
        assert target.over is None


@pytest.mark.parametrize(("name", "raised"), [("cancelled", OutOfTime), ("launch_failed", TargetError)])
def test_what_a_target_has_given_up_is_out_of_time(name: str, raised: type[Exception]) -> None:
    clock, target = Clock(), Patient()
    budget = Budget(60.0, clock)
    with pytest.raises(raised), budget.bounding(target, "tuning"):
        assert target.over is not None and not target.over()
        clock.now += 60.0
        assert target.over()
        raise TargetError(name, "so be it")
