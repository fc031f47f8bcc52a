"""Define what measures something of an application's own around inferences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Observer(Protocol):
    """Measure something of the application's own. before and after are called around an inference, outside its time;
    results returns the measurements by names with their units."""

    def before(self) -> None: ...
    def after(self) -> None: ...
    def results(self) -> Mapping[str, float]: ...


class Observers:
    """Call several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def before(self) -> None:
        for each in self._observers:
            each.before()

    def after(self) -> None:
        for each in self._observers:
            each.after()

    def results(self) -> dict[str, float]:
        return {name: float(value) for each in self._observers for name, value in each.results().items()}
