"""Run inferences in several forms in turns, for profiles that compare them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class InForms(Protocol):
    """Represent what makes inferences in several forms. recorder: records its inferences, None while they are not
    recorded; persistent_kernels: whether it may use them."""

    recorder: Any
    persistent_kernels: bool


def in_turns(
    executor: InForms,
    infer: Callable[[], int],
    forms: Sequence[tuple[Any, bool]],
    usual_form: int,
    inferences: int,
    compared: int,
    after: Callable[[int], None],
) -> list[list[int]]:
    """Make inferences in the first of some forms, of which the first `compared` take turns with those in the others;
    return the ns of each by its form. forms: a recorder or None, and whether by persistent kernels; usual_form: the
    place of the last form that is used once before, which loads code and fills caches."""
    times_ns: list[list[int]] = [[] for _ in forms]
    for form in forms[1 : usual_form + 1] if compared else ():
        timed(executor, infer, *form)
    for done in range(inferences):
        turn = range(len(forms)) if done < compared else range(1)
        for place in sorted(turn, key=lambda each: (each + done) % len(forms)):
            times_ns[place].append(timed(executor, infer, *forms[place]))
        after(done + 1)
    return times_ns


def timed(executor: InForms, infer: Callable[[], int], recorder: Any, persistent: bool) -> int:
    """Run an inference in one form, and return how many ns it took."""
    usual = executor.persistent_kernels
    executor.recorder, executor.persistent_kernels = recorder, usual and persistent
    try:
        return infer()
    finally:
        executor.recorder, executor.persistent_kernels = None, usual
