r"""Schedule the tuning of tasks: say, for every target that asks, whether to begin, continue, conclude or skip a task.

The trials of all tasks share one budget, and a time budget is one deadline. Each target has a thread, which takes an
entry, measures a batch of it and returns it. A choice is made for one batch at a time, by what is known then. What a
batch may use is taken off the budget when the entry is taken, so that targets cannot spend the same trials.

    not begun --STEP--> begun --STEP--> ... --TRANSFER--> ... --CONCLUDE--> finished
        \--SKIP--> finished                                 (the finalists are compared, the winner is stored)

A target is given the first of these that applies (TaskScheduler._choose):

1. A task that is not begun, unless it is late. Every task has a first batch before any has a second, because an
   unmeasured task could matter most. They are begun in the order of their guessed share of an inference, which
   decides what is omitted when the time budget runs out.
2. A begun task whose search is over, or whose strategy has nothing more to ask for: it tries what is best for others of
   its op (TRANSFER), and is then concluded, so that its winner is stored while others go on.
3. A begun task whose first batch was cut short: it is measured, whatever is left.
4. The batch that is expected to save most of an inference (expected_gain.py), if trials and time are left and it is
   worth it at all. Tasks below SMALL_SHARE of an inference are no candidates. If noise keeps a batch from deciding
   anything (measuring/doubt.py), the task is concluded instead, so that the next generation goes on with it.
5. When nothing pays any more: begun tasks try what is best by now for others of their op. A task that improves may pay
   again.
6. A begun task is concluded; if it is late, without TRANSFER.
7. When only unbegun tasks are left, and no time: they are skipped, and keep their default.

"Late" means that the remaining time is needed to conclude the begun tasks. The estimate is the mean time of the
conclusions so far (before the first: of as many trials as there are finalists), for each begun task and one more. A
batch has no more configurations than there is time for, by what each has taken so far. When there is no time even to
conclude a task by a comparison of its finalists, it is concluded by what is known of them. A task of which nothing is
known is skipped.

A task stays with the target that began it, because its inputs are there, until a target has nothing left to do. That
target then continues a task that waits for its own. Times of two devices of one model are compared only through their
baselines. Expected gains need the times of all tasks, including tasks of other targets, so one lock guards them all.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from gputune.cache import TaskKey, WinnerRecord
from gputune.client.tuning.expected_gain import Inference, Standing, gain_share, largest_first, most_promising, times_of
from gputune.client.tuning.measuring.doubt import is_blind
from gputune.client.tuning.search.effort import Effort
from gputune.client.tuning.search.seeding import transferred
from gputune.client.tuning.search.task_search import BATCH, TaskSearch
from gputune.client.tuning.task_tuning import TaskTuning
from gputune.kernels.space import Configuration

SMALL_SHARE = 0.005
"""A task that takes less of an inference than this gets its first, small batch and no other: all of them together take
a few trials."""

FIRST_BATCHES = ((0.2, BATCH), (0.06, 6), (SMALL_SHARE, 4), (0.0, 2))
"""How many configurations the first batch of a task has, the default among them, by the share of an inference that it
may take at least."""


LEAST_BATCH = 2
"""A batch has a configuration and what it is compared with."""

TRIED_FIRST = 4
"""Where time is limited, the very first batch has so many configurations: that tells what a trial takes."""


class Todo(Enum):
    """What a target does for a task next."""

    STEP = "step"
    TRANSFER = "transfer"
    """It tries what is best for others of its op."""
    CONCLUDE = "conclude"
    SKIP = "skip"
    """No time is left to begin it."""


@dataclass(frozen=True)
class Blind:
    """Why a task was ended early: the doubt of its last batch, and what the next one might have gained; shares."""

    doubt: float
    gain: float


@dataclass(eq=False)
class Entry:
    """What is scheduled. place: among the tasks of the model; before: the winner that it is to replace; worker: the
    number of the target where it was begun; stepped: it had a batch; dry: the strategy has nothing more to ask for;
    hurried: a budget has kept it from a batch, or noise has, which blind then says; transferred: what it tries of
    others; most: how many configurations the target that has it may try now; at_once: no time is left to compare its
    finalists; skipped: nothing was measured of it for want of time; standing: of its search, when no target last had
    it."""

    place: int
    search: TaskSearch
    before: WinnerRecord | None = None
    worker: int | None = None
    tuning: TaskTuning | None = None
    busy: bool = field(default=False, init=False)
    stepped: bool = field(default=False, init=False)
    finished: bool = field(default=False, init=False)
    dry: bool = field(default=False, init=False)
    transferred: Sequence[Configuration] = field(default=(), init=False)
    most: int = field(default=0, init=False)
    hurried: bool = field(default=False, init=False)
    at_once: bool = field(default=False, init=False)
    skipped: bool = field(default=False, init=False)
    blind: Blind | None = field(default=None, init=False)
    standing: Standing = field(init=False)

    def __post_init__(self) -> None:
        self.look()

    def look(self) -> None:
        """Read its standing, while no target has it: the thread of one changes its search."""
        search = self.search
        self.standing = Standing(
            search.work, search.best_ns or None, search.fruitless, gained=search.gained, doubt=search.doubt
        )


class TaskScheduler:
    """The tasks that are to be tuned. Targets, each in a thread, take an entry and give it back."""

    def __init__(
        self,
        entries: Sequence[Entry],
        effort: Effort,
        trial_budget: int,
        left: Callable[[], float] | None = None,
        inference: Inference | None = None,
        trial_seconds: float = 0.0,
    ) -> None:
        """trial_budget: how many trials all of them may take together, less what targets may try now; left: the seconds
        that are left, None without a limit; inference: what an inference takes by the times of these tasks, by default
        the sum of all; trial_seconds: what a trial takes before that is known, 0 for no idea."""
        works = [(entry.search.task.weight, entry.search.work) for entry in entries]
        self._entries = [entries[place] for place in largest_first(works)]
        self._inference = inference or self._sum
        self._effort = effort
        self._left = left or (lambda: math.inf)
        self._trial_seconds = trial_seconds
        self._tried, self._trying = 0, 0.0  # trials so far, and the seconds that they took
        self._lock = threading.Lock()
        self._stopped = False
        self._concluding: list[float] = []  # seconds that it took, task by task
        self.trial_budget = trial_budget

    def take(self, worker: int) -> tuple[Entry, Todo] | None:
        """Return what this target does next; None when there is nothing more for it. The entry is its own until it is
        given back."""
        with self._lock:
            idle = [entry for entry in self._entries if not (entry.busy or entry.finished or self._stopped)]
            mine = [entry for entry in idle if entry.worker in (None, worker)]
            chosen = self._choose(mine or idle)
            if chosen is not None:
                entry, todo = chosen
                entry.busy = True
                entry.most = self._most(entry, todo)
                self.trial_budget -= entry.most
                if todo is not Todo.SKIP:
                    entry.worker = worker
            return chosen

    def give_back(self, entry: Entry, todo: Todo, trials: int, seconds: float) -> None:
        """Take back an entry whose work is done: so many new configurations are known, and it took so long."""
        with self._lock:
            entry.busy = False
            entry.look()
            self.trial_budget += entry.most - trials
            if trials > 0:
                self._tried, self._trying = self._tried + trials, self._trying + seconds
            if todo is Todo.CONCLUDE:
                self._concluding.append(seconds)
            entry.finished = todo in (Todo.CONCLUDE, Todo.SKIP)
            entry.skipped = todo is Todo.SKIP
            entry.stepped = entry.stepped or todo is Todo.STEP
            entry.dry = entry.dry or (todo is Todo.STEP and not trials)

    def stop(self) -> None:
        """No task gets another batch."""
        with self._lock:
            self._stopped = True

    def others(self, entry: Entry) -> dict[TaskKey, Configuration]:
        """Return the best so far of other tasks that no target measures now."""
        with self._lock:
            idle = [other.search for other in self._entries if other is not entry and not other.busy]
            return {search.key: best for search in idle if (best := search.best) is not None}

    @property
    def _selective(self) -> bool:
        """Whether tasks that take little of an inference get fewer trials; not where everything is measured."""
        return self._effort.worth > 0

    def _most(self, entry: Entry, todo: Todo) -> int:
        """Return how many configurations a target may try of the entry that it takes."""
        if todo is Todo.TRANSFER:
            return len(entry.transferred)
        return self._batch(entry) if todo is Todo.STEP else 0

    def _batch(self, entry: Entry) -> int:
        """Return how many configurations the next batch of a task may have. The first one is measured whatever is left,
        and takes of the trial budget no more than the task has brought."""
        search, in_time = entry.search, self._in_time
        if entry.stepped and search.begun:
            return min(BATCH, self.trial_budget, in_time)
        most = min(BATCH, max(search.base - len(search.known), 0) if search.begun else search.base, in_time)
        if not self._selective:
            return most
        share = self._share(entry)
        return min(most, next(count for least, count in FIRST_BATCHES if share >= least))

    def _choose(self, mine: Sequence[Entry]) -> tuple[Entry, Todo] | None:
        if not mine:
            return None
        late, left = self._late(mine), self._left()
        for entry in mine:
            entry.at_once = late and left <= self._concluding_seconds
        if left <= 0:
            return self._ended(mine[0])
        for entry in mine:
            if entry.tuning is None and not late:
                return entry, Todo.STEP
        begun = [entry for entry in mine if entry.tuning is not None]
        for entry in begun:
            if entry.search.over or entry.dry:
                return entry, self._end(entry, late)
        waiting = [entry for entry in begun if not entry.search.begun and not (late and entry.search.best)]
        if waiting:  # what was to be measured first is, however little is left
            return waiting[0], Todo.STEP
        if self.trial_budget > 0 and not late:
            candidates = {entry.place: entry for entry in begun if self._may_pay(entry)}
            effort = self._effort
            place = most_promising(candidates, self._standings, self._inference, effort.least_gain, effort.worth)
            if place is not None:
                return self._step(candidates[place])
        for entry in begun:
            if self._end(entry, late) is Todo.TRANSFER:
                return entry, Todo.TRANSFER
        for entry in begun:
            entry.hurried = late
            return entry, Todo.CONCLUDE
        return mine[0], Todo.SKIP

    def _ended(self, entry: Entry) -> tuple[Entry, Todo]:
        """Return what becomes of a task when time is over: what is known of it decides."""
        if entry.tuning is None or not entry.search.best:
            return entry, Todo.SKIP
        entry.hurried = True
        return entry, Todo.CONCLUDE

    def _step(self, entry: Entry) -> tuple[Entry, Todo]:
        """Return another batch of a task; or its end, if the machine is too busy for a batch to decide anything."""
        doubt, gain = entry.standing.doubt, gain_share(entry.place, self._standings, self._effort.least_gain)
        if doubt is None or not (self._selective and is_blind(doubt, gain)):
            return entry, Todo.STEP
        entry.hurried, entry.blind = True, Blind(doubt, gain)
        return entry, Todo.CONCLUDE

    def _end(self, entry: Entry, late: bool) -> Todo:
        """Return what ends a task whose search has nothing more to ask for: to conclude it, once it has tried what is
        best for others; where it is late, or as much as any task may always gain is not worth it, without that."""
        entry.transferred = ()
        effort, most = self._effort, min(self._effort.finalists, self.trial_budget)
        if not late and most > 0 and self._share(entry) * effort.least_gain >= effort.worth:
            others = [one.search for one in self._entries if one is not entry and not one.busy]
            entry.transferred = transferred(entry.search, others)[:most]
        return Todo.TRANSFER if entry.transferred else Todo.CONCLUDE

    def _may_pay(self, entry: Entry) -> bool:
        return not self._selective or entry.search.best is None or self._share(entry) >= SMALL_SHARE

    def _share(self, entry: Entry) -> float:
        """Of the time of an inference, what a task takes where it runs as often as it can."""
        times = times_of(self._standings)
        whole = self._inference(times)
        return entry.search.task.weight * times[entry.place] / whole if whole > 0 else 1.0

    @property
    def _standings(self) -> dict[int, Standing]:
        return {entry.place: entry.standing for entry in self._entries}

    def _sum(self, times: Mapping[int, float]) -> float:
        return sum(entry.search.task.weight * times[entry.place] for entry in self._entries)

    def _late(self, mine: Sequence[Entry]) -> bool:
        """Return whether the time that is left is needed to conclude what was begun, or is too short for the least
        batch."""
        begun = sum(entry.tuning is not None for entry in mine)
        reserve = self._concluding_seconds * (1 + begun) if self._tried else 0.0
        return self._left() <= max(reserve, LEAST_BATCH * self._each_trial)

    @property
    def _concluding_seconds(self) -> float:
        """What it takes to conclude a task."""
        known = self._concluding
        return sum(known) / len(known) if known else self._effort.finalists * self._each_trial

    @property
    def _each_trial(self) -> float:
        """The seconds that a trial takes, all of its batch's time included."""
        return self._trying / self._tried if self._tried else self._trial_seconds

    @property
    def _in_time(self) -> int:
        """Return how many configurations a batch may have for it to end in time: the default and another at least, and
        few before it is known what a trial takes."""
        left, each = self._left(), self._each_trial
        if math.isinf(left):
            return BATCH
        most = BATCH if self._tried else TRIED_FIRST
        return min(most, max(LEAST_BATCH, int(left / each))) if each else most


def blind_line(found: Sequence[Blind | None]) -> str:
    """Return what is told of tasks that were ended early, one for each task; nothing where none was."""
    ended = [blind for blind in found if blind is not None]
    if not ended:
        return ""
    worst, gain = max(blind.doubt for blind in ended), max(blind.gain for blind in ended)
    return (
        f"{len(ended)} of {len(found)} tasks ended early: the machine was too busy to tell variants apart: times are "
        f"uncertain by up to ±{worst:.0%}, and {gain:.0%} could be gained; the same command continues from here"
    )
