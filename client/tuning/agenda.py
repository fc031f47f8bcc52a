"""What is done next, for every target that asks: begin a task, go on with one, conclude one, or leave it untouched.

The trials of all tasks are one pool, and a budget of time is one deadline: what they are spent on is decided batch by
batch, by what schedule.py expects of it. Every task is begun before any gets a second batch, and time is kept back to
conclude what was begun.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from gputune.cache import TaskKey, WinnerRecord
from gputune.client.tuning.effort import Effort
from gputune.client.tuning.schedule import Standing, first_first, most_promising
from gputune.client.tuning.task_search import TaskSearch
from gputune.client.tuning.task_tuning import TaskTuning
from gputune.kernels.space import Configuration


class Todo(Enum):
    """What a target does for a task next."""

    STEP = "step"
    CONCLUDE = "conclude"
    SKIP = "skip"
    """No time is left to begin it."""


@dataclass(eq=False)
class Entry:
    """A task on the agenda. place: among the tasks of the model; before: the winner that it is to replace; lane: the
    number of the target where it was begun; dry: the strategy has nothing more to ask for; hurried: a budget has kept
    it from a batch."""

    place: int
    search: TaskSearch
    before: WinnerRecord | None = None
    lane: int | None = None
    tuning: TaskTuning | None = None
    busy: bool = field(default=False, init=False)
    finished: bool = field(default=False, init=False)
    dry: bool = field(default=False, init=False)
    hurried: bool = field(default=False, init=False)

    @property
    def standing(self) -> Standing:
        search = self.search
        return Standing(search.task.weight, search.work, search.best_ns or None, search.fruitless)


class Agenda:
    """The tasks that are to be tuned. Targets, each in a thread, take an entry and give it back."""

    def __init__(
        self,
        entries: Sequence[Entry],
        effort: Effort,
        pool: int,
        budget_seconds: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """pool: how many trials all of them may take together; clock: seconds."""
        works = [(entry.search.task.weight, entry.search.work) for entry in entries]
        self._entries = [entries[place] for place in first_first(works)]
        self._effort = effort
        self._clock = clock
        self._deadline = None if budget_seconds is None else clock() + budget_seconds
        self._lock = threading.Lock()
        self._stopped = False
        self._concluding: list[float] = []  # seconds that it took, task by task
        self.pool = pool

    def take(self, lane: int) -> tuple[Entry, Todo] | None:
        """What this target does next; None when there is nothing more for it. The entry is its own until it is given
        back."""
        with self._lock:
            mine = [entry for entry in self._entries if not entry.busy and entry.lane in (None, lane)]
            mine = [] if self._stopped else [entry for entry in mine if not entry.finished]
            chosen = self._choose(mine)
            if chosen is not None:
                entry, todo = chosen
                entry.busy = True
                if todo is not Todo.SKIP:
                    entry.lane = lane
            return chosen

    def give_back(self, entry: Entry, todo: Todo, trials: int, seconds: float) -> None:
        """That is done: so many new configurations are known, and it took so long."""
        with self._lock:
            entry.busy = False
            self.pool -= trials
            if todo is Todo.CONCLUDE:
                self._concluding.append(seconds)
            elif not self._concluding and todo is Todo.STEP:
                self._concluding.append(seconds)  # the finalists take about as long as any other batch
            entry.finished = todo is not Todo.STEP
            entry.dry = entry.dry or (todo is Todo.STEP and not trials)

    def stop(self) -> None:
        """Nobody gets anything more."""
        with self._lock:
            self._stopped = True

    def others(self, entry: Entry) -> dict[TaskKey, Configuration]:
        """The best so far of other tasks that nobody is at now."""
        with self._lock:
            idle = [other.search for other in self._entries if other is not entry and not other.busy]
            return {search.key: best for search in idle if (best := search.best) is not None}

    def _choose(self, mine: Sequence[Entry]) -> tuple[Entry, Todo] | None:
        if not mine:
            return None
        late = self._late(mine)
        for entry in mine:
            if entry.tuning is None and not late:
                return entry, Todo.STEP
        begun = [entry for entry in mine if entry.tuning is not None]
        for entry in begun:
            if entry.search.over or entry.dry:
                return entry, Todo.CONCLUDE
        waiting = [entry for entry in begun if not entry.search.begun and not (late and entry.search.best)]
        if waiting:  # what was to be measured first is, however little is left
            return waiting[0], Todo.STEP
        few = [entry for entry in begun if len(entry.search.known) < entry.search.least]
        if few and self._deadline is None:
            return few[0], Todo.STEP
        if self.pool > 0 and not late:
            everything = [entry.standing for entry in self._entries if not entry.busy or entry.finished]
            place = most_promising([entry.standing for entry in begun], everything, self._effort.worth)
            if place is not None:
                return begun[place], Todo.STEP
        for entry in begun:
            entry.hurried = late
            return entry, Todo.CONCLUDE
        return mine[0], Todo.SKIP

    def _late(self, mine: Sequence[Entry]) -> bool:
        """Whether the time that is left is needed to conclude what was begun."""
        if self._deadline is None:
            return False
        each = sum(self._concluding) / len(self._concluding) if self._concluding else 0.0
        reserve = each * (1 + sum(entry.tuning is not None for entry in mine))
        return self._clock() + reserve >= self._deadline
