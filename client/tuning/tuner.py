"""Find the fastest verified configuration of every task of a model, on one target or on several equal targets.

A concluded winner in the performance cache is used after it was validated against today's space and code, and a pinned
configuration if it is known to work. All other tasks are tuned in batches, in the order of task_scheduler.py. What an
interrupted run left in the cache is given to the strategy and not measured again.

Several targets work in parallel, each in a thread with its own connection to the cache; more may join meanwhile. A task
stays on the target that began it until another target has nothing left to do.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial

from gputune.cache import PerformanceCache, TrialRecord, WinnerRecord
from gputune.cache.record import Contents
from gputune.client.errors import CacheMiss, TuningError
from gputune.client.model.plan import Task
from gputune.client.options.tuning import TuningOptions
from gputune.client.progress import SILENT, Progress, keeping_label
from gputune.client.target.client import TargetClient
from gputune.client.target.several import settings_of
from gputune.client.tuning.budget import Budget
from gputune.client.tuning.expected_gain import Inference
from gputune.client.tuning.measuring.cooling import Cooling
from gputune.client.tuning.measuring.finalists import runners_up
from gputune.client.tuning.measuring.quiet import LoadRecord
from gputune.client.tuning.measuring.runner import TaskRunner
from gputune.client.tuning.outcome import Outcome, pinned, tuned, untuned
from gputune.client.tuning.search.cache_hit import Verdict, explained, judge
from gputune.client.tuning.search.effort import Effort, finalists_for
from gputune.client.tuning.search.seeding import Seeding
from gputune.client.tuning.search.task_search import TaskSearch, check_legal, device_limits, task_key
from gputune.client.tuning.task_scheduler import Entry, TaskScheduler, Todo, blind_line
from gputune.client.tuning.task_tuning import TaskTuning
from gputune.core.identity import DeviceIdentity
from gputune.core.statuses import OK
from gputune.kernels.family import DeviceLimits
from gputune.kernels.space import Configuration, configuration_key

log = logging.getLogger(__name__)

SHOWN_MISSES = 3

MOST_TARGETS = 256
ARRIVAL_SECONDS = 0.5
"""So often it is asked whether another target has come."""

KEPT_BYTES = 256 << 20
"""What the buffers of tasks that wait for their next batch may take on a target."""


def names_of(task: Task, nodes: Sequence[str] = ()) -> tuple[str, ...]:
    """Return what patterns may call a task: its title, op, the digest of its key, and the model's nodes that run it."""
    key = task_key(task)
    return (f"{task.op} {key.digest[:10]}", task.op, key.digest, *nodes)


@dataclass(eq=False)
class _Worker:
    """A target at work: its number, and what is its alone."""

    number: int
    target: TargetClient
    cache: PerformanceCache
    seeding: Seeding
    cooling: Cooling


class Tuner:
    """Tunes tasks on targets that are all alike, remembering every trial in one performance cache."""

    def __init__(
        self,
        targets: Sequence[TargetClient],
        cache: PerformanceCache,
        effort: Effort,
        progress: Progress = SILENT,
        options: TuningOptions | None = None,
        nodes: Mapping[Task, Sequence[str]] | None = None,
        inference_ns: Callable[[Callable[[Task], float]], float] | None = None,
        arrived: Callable[[], TargetClient | None] | None = None,
        load: LoadRecord | None = None,
        limits: DeviceLimits | None = None,
        budget: Budget | None = None,
    ) -> None:
        """nodes: the names of the model's nodes that run a task, for the patterns of the options; inference_ns: what an
        inference takes when its tasks take what a function says, all of them together unless told otherwise; arrived:
        gives another target, like the others, that was not there before, None while there is none; load: hears how
        busy targets are; limits: of the device, by default what its identity says; budget: of which tuning has a share,
        by default all that the options allow."""
        self._targets = list(targets)
        self._arrived = arrived
        self._load = load
        self._cache = cache
        self._effort = effort
        self._progress = progress
        self._options = options or TuningOptions()
        self._nodes = nodes or {}
        self._inference_ns = inference_ns
        self._device = DeviceIdentity.from_dict(targets[0].device)
        self._limits = limits or device_limits(self._device)
        self._settings = settings_of(targets[0].server)
        self._searches: dict[tuple[str, object], TaskSearch] = {}
        self._optional: frozenset[Task] = frozenset()
        self._budget = budget or Budget(self._options.budget_seconds)
        self.unfinished = ""  # what the budget has kept `tune` from

    def check(self, tasks: Sequence[Task]) -> None:
        """Check that what the options say of tasks can be done, before anything is. Raises ConfigError, TuningError."""
        self._options.check_bound([self._names(task) for task in tasks])
        for task in tasks:
            if (pin := self._pin(task)) is None:
                continue
            search = self._search(task)
            check_legal(pin, search.space, search.default, f"pin of {search.title}")

    def verdicts(self, tasks: Sequence[Task]) -> dict[Task, Verdict]:
        """Return what `tune` will do with each task, and why it will be measured where it will be. Raises TuningError
        for a pinned configuration that is known not to work, CacheError."""
        found = {task: self._judge(task) for task in tasks}
        known = self._cache.tasks() if any(verdict.measures for verdict in found.values()) else []
        seeding = Seeding(self._cache)

        def seeds(search: TaskSearch) -> str:
            return seeding.seeds_for(search.key, search.validity, search.space, {}).origin

        return {
            task: explained(verdict, search, self._cache, known, partial(seeds, search))
            for task, verdict in found.items()
            for search in [self._search(task)]
        }

    def borrow(self, tasks: Sequence[Task], system: PerformanceCache) -> int:
        """Take in what another cache knows of tasks that this one has not concluded, and what it has chosen in chains;
        returns of how many tasks. Raises CacheError."""
        entries = []
        for task in tasks:
            search = self._search(task)
            if self._cache.winner_of(search.key, search.validity) is None:
                entry = system.entry_of(search.key, search.validity)
                entries += [entry] if entry.conclusion is not None else []
        if entries:
            self._cache.take_in(Contents(tuple(entries), system.contents_of_chains()), str(system.path))
        return len(entries)

    def expected_trials(self, tasks: Sequence[Task]) -> int:
        """Return how many variants will be measured at most, finalists included."""
        measured = [(task, verdict) for task in tasks if (verdict := self._judge(task)).measures]
        pins = sum(verdict.pin is not None for _, verdict in measured)
        entries = [Entry(0, self._search(task), one.winner) for task, one in measured if one.pin is None]
        return 2 * pins + self._pool(entries) + sum(map(self._finalists, entries))

    def tune(
        self,
        tasks: Sequence[Task],
        done: Callable[[Outcome], None] = lambda outcome: None,
        optional: Collection[Task] = (),
    ) -> list[Outcome]:
        """Return the outcome of each task; `done` hears of each as soon as it is known. An `optional` one of which no
        variant works is left with its default, unmeasured.

        Raises what `check` does, TuningError when no variant of another task works, CacheMiss when the cache is frozen
        and does not know one, TargetError, CacheError."""
        self.check(tasks)
        self._optional = frozenset(optional)
        outcomes: dict[int, Outcome] = {}

        def tell(place: int, outcome: Outcome) -> None:
            outcomes[place] = outcome
            done(outcome)

        verdicts = [self._judge(task) for task in tasks]
        if self.measures_nothing:
            self._check_known([task for task, one in zip(tasks, verdicts, strict=True) if self._misses(task, one)])
        entries = []
        for place, (task, verdict) in enumerate(zip(tasks, verdicts, strict=True)):
            if not verdict.measures or self.measures_nothing:
                tell(place, self._unmeasured(task, verdict))
            elif verdict.pin is not None:
                tell(place, self._pinned(self._search(task), verdict.pin))
            else:
                entries.append(Entry(place, self._search(task), verdict.winner))
        scheduler = TaskScheduler(
            entries,
            self._effort,
            self._pool(entries),
            partial(self._budget.left, "tuning"),
            self._inference(tasks, outcomes),
            self._budget.program_seconds,
        )
        if entries:
            self._run(scheduler, tell)
        self._progress.shrink(max(scheduler.trial_budget, 0))
        cut = sum(not entry.skipped and entry.hurried and entry.blind is None for entry in entries)
        if skipped := sum(entry.skipped for entry in entries):
            kept = "their earlier winners, or their unmeasured defaults"
            self.unfinished = f"{skipped} of {len(tasks)} tasks keep {kept}"
        elif cut:
            self.unfinished = f"the search of {cut} of {len(tasks)} tasks was cut short"
        if line := blind_line([entry.blind for entry in entries]):
            log.warning(line)
        self._report([entry.tuning for entry in entries if entry.tuning is not None])
        return [outcomes[place] for place in range(len(tasks))]

    def _inference(self, tasks: Sequence[Task], known: Mapping[int, Outcome]) -> Inference | None:
        """Return what an inference takes by the times of the tasks that are tuned, beside those that are known."""
        if (inference_ns := self._inference_ns) is None:
            return None
        fixed = {place: outcome.tuned_ns or 0.0 for place, outcome in known.items()}
        places = {(task.op, task.problem): place for place, task in enumerate(tasks)}

        def inference(times: Mapping[int, float]) -> float:
            by_place = fixed | dict(times)
            return inference_ns(lambda task: by_place[places[task.op, task.problem]])

        return inference

    def _report(self, tunings: Sequence[TaskTuning]) -> None:
        """Say in one line how the device changed; the details of each task are said at a higher log level."""
        lines = [tuning.drift_line for tuning in tunings if tuning.drift_line]
        if len(lines) == 1:
            log.warning(lines[0])
        elif lines:
            drift = max((tuning.drift for tuning in tunings), key=lambda drift: drift.distance)
            log.warning(
                f"while {len(lines)} of {len(tunings)} tasks were tuned the device changed its speed: it became up to "
                f"{drift.words}; each time is compared with that of a baseline measured next to it"
            )

    def identity(self, task: Task) -> str:
        """Return where, and with which code, a task's times belong."""
        return self._search(task).validity.digest

    def rendered_sha256(self, task: Task, outcome: Outcome) -> str:
        """Identity of what a task's outcome renders to today."""
        return self._search(task).rendered_sha256(outcome.configuration)

    def is_free(self, task: Task) -> bool:
        """Return whether the user leaves the choice of a task's configuration to what is measured."""
        names = self._names(task)
        return self._options.pin_of(names) is None and self._options.wants(names)

    def finalists(self, task: Task, most: int) -> list[WinnerRecord]:
        """Return the winner of a task that was tuned, those that come close to it, at most so many in all, and the
        default; they are as it is but for configuration, time and launches. Nothing where the user has chosen, or where
        nothing has won. Raises CacheError."""
        search = self._search(task)
        if not self.is_free(task) or (winner := self._judge(task).winner) is None:
            return []
        if not search.known:
            search.resume(self.trials(task))
        others = runners_up(search, winner.configuration)[: most - 1]
        if search.default != winner.configuration and search.default not in others and search.time_ns(search.default):
            others.append(search.default)
        return [winner] + [
            replace(
                winner,
                configuration=configuration,
                median_ns=search.time_ns(configuration) or winner.median_ns,
                rendered_sha256=search.rendered_sha256(configuration),
            )
            for configuration in others
        ]

    def measured(self, task: Task) -> list[tuple[Configuration, float, float]]:
        """Return every configuration of a task that works, with its time as on the device as it was at first, by which
        they compare, and its median; nanoseconds, fastest first. Nothing where the user chose. Raises CacheError."""
        search = self._search(task)
        if not self.is_free(task):
            return []
        if not search.known:
            search.resume(self.trials(task))
        found = [
            (record.configuration, cost, time_ns)
            for record in search.known.values()
            if (cost := search.cost(record.configuration)) is not None
            and (time_ns := search.time_ns(record.configuration)) is not None
        ]
        return sorted(found, key=lambda one: (one[1], configuration_key(one[0])))

    def trials(self, task: Task) -> list[TrialRecord]:
        """Return all trials of a task, in the order of their arrival. Raises CacheError."""
        search = self._search(task)
        return self._cache.trials_of(search.key, search.validity)

    def still_holds(self, task: Task, winner: WinnerRecord) -> bool:
        """Return whether what was chosen for a task is legal today and renders to the launches that were measured."""
        return self._search(task).still_holds(winner.configuration, winner.rendered_sha256)

    # --- before anything is measured ---------------------------------------------------------------------

    def _names(self, task: Task) -> tuple[str, ...]:
        return names_of(task, self._nodes.get(task, ()))

    def _pin(self, task: Task) -> Configuration | None:
        return self._options.pin_of(self._names(task))

    def _search(self, task: Task) -> TaskSearch:
        """Return the search of a task; made once, whatever its weight, because counting a space takes a while."""
        key = task.op, task.problem
        if key not in self._searches:
            self._searches[key] = TaskSearch(
                task,
                self._device,
                self._limits,
                self._effort,
                self._settings,
                self._options.strategy,
                self._options.cold,
            )
        return self._searches[key]

    def _judge(self, task: Task) -> Verdict:
        return judge(self._search(task), self._cache, self._effort, self._options, self._names(task))

    def _unmeasured(self, task: Task, verdict: Verdict) -> Outcome:
        """Return the outcome of a task that is not measured: what is known of it, else its default."""
        search = self._search(task)
        if verdict.pin is not None:
            self._resume(search)
            return pinned(search, verdict.pin, None)
        if verdict.winner is not None and (verdict.kind == "hit" or self._options.compare_again):
            return tuned(search, verdict.winner, None)
        return untuned(task, self._limits)

    @property
    def measures_nothing(self) -> bool:
        return self._options.cache_mode == "frozen" or self._options.compare_again

    def _misses(self, task: Task, verdict: Verdict) -> bool:
        """Return whether the cache lacks what must be known of a task, where nothing may be measured: fused operations
        can run one by one, and whole contexts are compared again with what has won so far."""
        if self._options.compare_again and verdict.winner is not None:
            return False
        return verdict.measures and (verdict.pin is not None or task not in self._optional)

    def _check_known(self, missing: Sequence[Task]) -> None:
        """Raise CacheMiss where the cache lacks tasks and nothing may be measured."""
        if not missing:
            return
        verdicts = self.verdicts(missing)
        why = [f"{self._search(task).title}: {verdicts[task].why or 'new'}" for task in missing]
        shown = "; ".join(why[:SHOWN_MISSES]) + (f"; and {len(why) - SHOWN_MISSES} more" * (len(why) > SHOWN_MISSES))
        tasks = f"{len(missing)} task{'s' * (len(missing) > 1)}: {shown}; tune"
        if self._options.compare_again:
            raise CacheMiss(
                f"--compare_again measures no task, and the performance cache does not hold {tasks} without "
                "--compare_again first"
            )
        raise CacheMiss(f"the performance cache is frozen and does not hold {tasks} with another cache_mode first")

    def _resume(self, search: TaskSearch) -> None:
        """Take in what the cache knows of a task, once."""
        if not search.known:
            search.resume(self._cache.trials_of(search.key, search.validity), self._options.retry_failures)

    def _pool(self, entries: Sequence[Entry]) -> int:
        """Return the trials that these tasks may take together: what the effort has for each, less what is known."""
        trial_budget = 0
        for entry in entries:
            search = entry.search
            self._resume(search)
            trial_budget += max(search.base - len(search.known) - search.to_measure_again, 0) + search.to_measure_again
        return trial_budget

    def _finalists(self, entry: Entry) -> int:
        return finalists_for(self._effort, entry.search.space.size)

    def _pinned(self, search: TaskSearch, pin: Configuration) -> Outcome:
        """Return the outcome for a configuration that the user has chosen, measured now, beside the default if that is
        not known. Raises TuningError when it does not work."""
        self._resume(search)
        tuning = self._tuning(self._worker(0, self._cache), search)
        missing = [c for c in (search.default, pin) if configuration_key(c) not in search.known]
        tuning.measure([c for place, c in enumerate(missing) if c not in missing[:place]])
        tuning.runner.clear()
        self._progress.shrink(2 - len(missing))
        record = search.known[configuration_key(pin)]
        if record.status != OK:
            raise TuningError(
                f"{search.title}: the pinned configuration does not work: {record.status}: {record.message}"
            )
        return pinned(search, pin, tuning.drift)

    # --- on the targets ----------------------------------------------------------------------------------

    def _run(self, scheduler: TaskScheduler, tell: Callable[[int, Outcome], None]) -> None:
        """Has every target work until nothing is left, those that come meanwhile, too; what one raises stops the others
        after their batch."""
        if len(self._targets) == 1 and self._arrived is None:
            self._work(self._worker(0, self._cache), scheduler, tell)
            return
        with ThreadPoolExecutor(MOST_TARGETS, "target") as threads:
            numbers = range(len(self._targets))
            work = keeping_label(self._work_alone)
            running = [threads.submit(work, number, scheduler, tell) for number in numbers]
            try:
                while (states := wait(running, ARRIVAL_SECONDS, FIRST_EXCEPTION)).not_done:
                    if any(worker.exception() for worker in states.done):
                        break
                    if self._arrived is None or len(running) == MOST_TARGETS:
                        continue
                    if (target := self._arrived()) is not None:
                        self._targets.append(target)
                        running.append(threads.submit(work, len(running), scheduler, tell))
            finally:
                scheduler.stop()
        for worker in running:
            worker.result()

    def _work_alone(self, number: int, scheduler: TaskScheduler, tell: Callable[[int, Outcome], None]) -> None:
        """Works in a thread, with a connection to the cache of its own."""
        with PerformanceCache.open(self._cache.path, warn=log.warning, secret=self._cache.secret) as cache:
            self._work(self._worker(number, cache), scheduler, tell)

    def _worker(self, number: int, cache: PerformanceCache) -> _Worker:
        return _Worker(number, self._targets[number], cache, Seeding(cache), Cooling())

    def _work(self, worker: _Worker, scheduler: TaskScheduler, tell: Callable[[int, Outcome], None]) -> None:
        there: list[TaskTuning] = []  # whose buffers are on the target, the one used longest ago first
        while (taken := scheduler.take(worker.number)) is not None:
            entry, todo = taken
            began, trials = time.monotonic(), 0
            if todo is Todo.SKIP:
                self._progress.shrink(self._finalists(entry))
                tell(entry.place, self._skipped(entry))
            elif todo in (Todo.STEP, Todo.TRANSFER):
                tuning = self._begun(worker, entry, scheduler)
                if todo is Todo.TRANSFER:
                    trials = tuning.measure(entry.transferred)
                elif entry.most > 0:
                    trials = tuning.step(entry.most)
                there = self._making_room([*(one for one in there if one is not tuning), tuning])
            else:
                tuning = self._begun(worker, entry, scheduler)
                there = [one for one in there if one is not tuning]
                tell(entry.place, self._conclude(entry, tuning))
            scheduler.give_back(entry, todo, trials, time.monotonic() - began)
        for one in there:  # what went on elsewhere
            one.runner.clear()

    def _skipped(self, entry: Entry) -> Outcome:
        """Return the outcome of a task without time left: what an earlier generation has found, else the default."""
        if entry.before is not None:
            return tuned(entry.search, entry.before, None)
        return replace(untuned(entry.search.task, self._limits), trials=entry.search.statuses())

    def _begun(self, worker: _Worker, entry: Entry, scheduler: TaskScheduler) -> TaskTuning:
        """Return a task's tuning on this target, begun now if it was not; what another target had of it stays there."""
        search = entry.search
        if entry.tuning is not None and entry.tuning.runner.target is not worker.target:
            entry.tuning = self._tuning(worker, search)
        if entry.tuning is None:
            seeds = worker.seeding.seeds_for(search.key, search.validity, search.space, scheduler.others(entry))
            search.seeds, search.strangers, search.earlier = seeds.configurations, seeds.strangers, seeds.earlier
            if seeds.origin:
                log.debug(f"{search.title}: begins with configurations from elsewhere: {seeds.origin}")
            entry.tuning = self._tuning(worker, search)
        return entry.tuning

    def _tuning(self, worker: _Worker, search: TaskSearch) -> TaskTuning:
        runner = TaskRunner(
            worker.target, search, self._effort, self._options.cold, worker.cooling, self._load, self._budget
        )
        return TaskTuning(search, runner, worker.cache, self._effort, self._progress)

    def _conclude(self, entry: Entry, tuning: TaskTuning) -> Outcome:
        search = entry.search
        expected, before = self._finalists(entry), search.measured
        try:
            winner = tuning.conclude(entry.before, hurried=entry.hurried, at_once=entry.at_once)
            entry.hurried = entry.hurried or tuning.out_of_time
        except TuningError as error:
            if search.task not in self._optional:
                raise
            log.warning(f"{error}; its operations are not fused")
            winner = None
        self._progress.shrink(expected - (search.measured - before))
        tuning.runner.clear()
        if winner is None:
            return replace(untuned(search.task, self._limits), trials=search.statuses())
        return tuned(search, winner, tuning.drift)

    def _making_room(self, there: list[TaskTuning]) -> list[TaskTuning]:
        """Clear away what was used longest ago where buffers take too much; return what is still there."""
        while len(there) > 1 and sum(one.runner.bytes for one in there) > KEPT_BYTES:
            there.pop(0).runner.clear()
        return there
