"""Test which thread's turn is next."""

import functools
import threading

from hypothesis import given
from hypothesis import strategies as st

from gputune.client.run.throughput.turns import Turns
from tests.waiting import becomes


def order_of(priorities: list[int], at_a_time: int) -> list[int]:
    """In which order threads, which come one behind the other while all turns are taken, have theirs."""
    turns, order, lock = Turns(at_a_time), list[int](), threading.Lock()

    def take(place: int) -> None:
        with turns.turn(priorities[place]), lock:
            order.append(place)

    threads = [threading.Thread(target=take, args=(place,)) for place in range(len(priorities))]
    held = [turns.turn(0) for _ in range(at_a_time)]
    for one in held:
        one.__enter__()
    for count, thread in enumerate(threads, 1):
        thread.start()
        assert becomes(functools.partial(wait, turns, count), 0.0001)
    held[0].__exit__(None, None, None)
    for thread in threads:
        thread.join()
    for one in held[1:]:
        one.__exit__(None, None, None)
    assert turns._free == at_a_time
    return order


def wait(turns: Turns, count: int) -> bool:
    return len(turns._waiting) == count


@given(st.lists(st.integers(-1, 1), max_size=5), st.integers(1, 2))
def test_the_highest_priority_goes_first_and_of_equals_the_first(priorities: list[int], at_a_time: int) -> None:
    wanted = sorted(range(len(priorities)), key=lambda place: (-priorities[place], place))
    assert order_of(priorities, at_a_time) == wanted


def test_only_so_many_have_a_turn() -> None:
    turns, inside, most, lock = Turns(2), 0, 0, threading.Lock()

    def take() -> None:
        nonlocal inside, most
        for _ in range(50):
            with turns.turn(0):
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=take) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, 1 <= most <= 2) == (0, True)
