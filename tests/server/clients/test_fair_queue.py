"""Test which request is served next: fair between owners by the device's time, in order for each."""

import itertools
import random
from collections import Counter

import pytest

from gputune.server.clients.fair_queue import FairQueue


def drain(queue: FairQueue[str, str], seconds: dict[str, float] | None = None) -> list[str]:
    """Everything in the order in which it is served; an item's owner is its first letter."""
    served = []
    while (item := queue.next()) is not None:
        served.append(item)
        queue.spent(item[0], (seconds or {}).get(item[0], 1.0))
    return served


def filled(*items: str, tolerance: float = 0.0) -> FairQueue[str, str]:
    queue: FairQueue[str, str] = FairQueue(tolerance)
    for item in items:
        queue.add(item[0], item, item[0])
    return queue


def test_of_equals_the_one_that_waited_longest_goes_first() -> None:
    assert drain(filled("b1", "a1", "c1")) == ["b1", "a1", "c1"]


def test_one_with_many_items_does_not_keep_others_waiting() -> None:
    assert drain(filled("a1", "a2", "a3", "b1", "c1", "c2")) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_time_counts_and_not_the_number_of_items() -> None:
    queue = filled(*(f"a{n}" for n in range(10)), *(f"b{n}" for n in range(40)))
    first = drain(queue, {"a": 4.0, "b": 1.0})[:25]
    assert sum(item[0] == "a" for item in first) == 5
    assert [item for item in first if item[0] == "a"] == [f"a{n}" for n in range(5)]


def test_whoever_comes_starts_level_with_those_who_wait() -> None:
    queue = filled("a1", "a2", "a3", "a4")
    for _ in range(2):
        queue.next()
        queue.spent("a", 100.0)
    for item in ("b1", "b2", "b3"):
        queue.add("b", item, "b")
    # what a used while no other owner waited is no debt: b is one item ahead, not two
    assert drain(queue, {"a": 1.0, "b": 100.0}) == ["b1", "a3", "b2", "a4", "b3"]


def test_an_idle_time_is_no_credit() -> None:
    queue = filled("b1", "a1")
    drain(queue)
    for number in range(50):  # b is idle
        queue.add("a", f"a{number}", "a")
        drain(queue)
    for number in range(4):
        queue.add("a", f"a{number}", "a")
        queue.add("b", f"b{number}", "b")
    served = drain(queue)
    assert [item[0] for item in served].index("a") <= 1


@pytest.mark.slow
def test_many_who_ask_again_when_they_are_answered_are_served_evenly() -> None:
    chance = random.Random(3)
    owners = [chr(ord("A") + number) for number in range(50)]
    queue = filled(*owners, tolerance=0.5)
    served = dict.fromkeys(owners, 0)
    for _ in range(5000):
        owner = queue.next()
        assert owner is not None
        served[owner] += 1
        queue.spent(owner, chance.choice([0.001] * 9 + [0.03]))  # a machine stutters
        queue.add(owner, owner, owner)
    assert set(served.values()) == {100}


def test_the_tolerance_is_the_most_that_anybody_gains() -> None:
    queue = filled("a", "b", tolerance=0.5)
    used = {"a": 0.0, "b": 0.0}
    for _ in range(1000):
        owner = queue.next()
        assert owner is not None
        seconds = 0.1 if owner == "a" else 0.01
        used[owner] += seconds
        queue.spent(owner, seconds)
        queue.add(owner, owner, owner)
    assert used["b"] > 5
    assert abs(used["a"] - used["b"]) <= 0.5 + 0.1


def test_one_that_is_held_back_is_passed_over() -> None:
    queue = filled("a1", "b1")
    assert queue.next(held_back={"a"}) == "b1"
    assert queue.next(held_back={"a"}) is None
    assert queue.next() == "a1"


def test_the_order_is_told_before_it_happens() -> None:
    queue = filled("a1", "a2", "b1", "c1", "b2")
    assert queue.order() == ["a1", "b1", "c1", "a2", "b2"] == drain(queue)


def test_items_and_owners_can_leave() -> None:
    queue = filled("a1", "a2", "b1")
    assert queue.remove("a", "a1")
    assert not queue.remove("a", "a1")
    assert not queue.remove("z", "z1")
    queue.leave("b")
    queue.leave("b")
    queue.spent("b", 1.0)
    assert len(queue) == 1
    assert drain(queue) == ["a2"]


def with_tenants(*items: str, tolerance: float = 0.0) -> FairQueue[str, str]:
    """An item's tenant is its first letter, and its owner its first two."""
    queue: FairQueue[str, str] = FairQueue(tolerance)
    for item in items:
        queue.add(item[:2], item, item[0])
    return queue


@pytest.mark.parametrize("tolerance", [0.0, 0.5])
@pytest.mark.parametrize("seconds", [0.001, 1.0])
def test_two_parties_alternate_although_one_has_ten_clients(tolerance: float, seconds: float) -> None:
    queue = with_tenants(*(f"a{client}" for client in range(10)), "b0", tolerance=tolerance)
    served = []
    for _ in range(200):
        owner = queue.next()
        assert owner is not None
        served.append(owner)
        queue.spent(owner, seconds)
        queue.add(owner, owner, owner[0])
    assert {first[0] + second[0] for first, second in itertools.pairwise(served)} == {"ab", "ba"}
    assert set(Counter(owner for owner in served if owner[0] == "a").values()) == {10}


def test_the_clients_of_a_party_are_served_in_turns() -> None:
    queue = with_tenants("a0x", "a0y", "a0z", "a1x", "b0x", "a1y")
    assert queue.order() == ["a0x", "b0x", "a1x", "a0y", "a1y", "a0z"]
    served = []
    while (item := queue.next()) is not None:
        served.append(item)
        queue.spent(item[:2], 1.0)
    assert served == ["a0x", "b0x", "a1x", "a0y", "a1y", "a0z"]


def test_coming_again_pays_no_debt() -> None:
    queue = with_tenants("a0", "b0", "b0", "b0", "b0")
    assert queue.next() == "a0"
    queue.spent("a0", 2.5)
    queue.leave("a0")
    queue.add("a1", "a1", "a")
    served = []
    for _ in range(4):
        served.append(queue.next())
        queue.spent("b0", 1.0)
    assert served == ["b0", "b0", "b0", "a1"]
    queue.leave("a1")
    queue.spent("b0", 9.0)
    queue.add("c0", "c0", "c")
    queue.next()
    assert list(queue._tenants) == ["b", "c"]  # the others have used as much as a, which is gone


def test_an_idle_time_is_no_credit_within_a_tenant() -> None:
    queue = with_tenants("a0", "a1")
    for _ in range(2):
        owner = queue.next()
        assert owner is not None
        queue.spent(owner, 1.0)
    for _ in range(50):  # a1 is idle
        queue.add("a0", "a0", "a")
        assert queue.next() == "a0"
        queue.spent("a0", 1.0)
    for _ in range(4):
        queue.add("a0", "a0", "a")
        queue.add("a1", "a1", "a")
    served = []
    while (item := queue.next()) is not None:
        served.append(item)
        queue.spent(item, 1.0)
    assert "a0" in served[:3]
    assert {first + second for first, second in itertools.pairwise(served[2:])} == {"a0a1", "a1a0"}


def test_a_new_connection_is_not_free_of_what_its_tenant_has_used() -> None:
    queue = with_tenants("a0", *["b0"] * 12)
    assert queue.next() == "a0"
    queue.spent("a0", 10.0)
    queue.leave("a0")
    served = []
    for number in range(12):
        if number:  # after another one was served meanwhile
            queue.add(f"a{number}", f"a{number}", "a")
        served.append(queue.next())
        queue.spent(str(served[-1]), 1.0)
        queue.leave(f"a{number}")
    assert served == ["b0"] * 11 + ["a11"]


def test_who_is_to_be_served_before_one_goes_on() -> None:
    queue = with_tenants("a0", "a1", "b0", tolerance=0.5)
    assert queue.next() == "a0"
    queue.spent("a0", 0.5)
    assert not queue.before("a0")
    queue.spent("a0", 0.1)
    assert queue.before("a0")
    assert queue.before("a0", held_back={"b0"})  # a1 is of the same tenant, and has used nothing
    assert not queue.before("a0", held_back={"a1", "b0"})
    queue.add("a0", "a0 again", "a", first=True)
    assert [queue.next(), queue.next(), queue.next()] == ["b0", "a1", "a0 again"]
    queue.leave("a0")
    assert not queue.before("a0")


def test_what_goes_on_waits_before_the_others_of_its_client() -> None:
    queue = with_tenants("a0x", "a0y")
    assert queue.next() == "a0x"
    queue.add("a0", "a0x", "a", first=True)
    assert queue.order() == ["a0x", "a0y"]
