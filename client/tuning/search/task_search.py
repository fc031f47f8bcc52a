"""Search one task's space: its identity in the cache, what is known, what to measure next, and the best so far."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gputune.cache import TaskKey, TrialRecord, Validity
from gputune.cache.lookup import Change
from gputune.cache.programs import compiler_of
from gputune.client.errors import ConfigError, TuningError
from gputune.client.model.plan import Task
from gputune.client.tuning.search.effort import Effort, most_trials, trials_for
from gputune.client.tuning.search.rendered import rendered_sha256
from gputune.client.tuning.search.strategies import Evaluation, Strategy
from gputune.client.tuning.search.strategies.catalogue import STRATEGIES
from gputune.core.alike import as_kind
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import ArgumentForm
from gputune.core.quirks import quirks_of, standard_of, usual_form
from gputune.core.statuses import OK
from gputune.kernels.algorithms import way_of
from gputune.kernels.catalogue import family_of, identity_of
from gputune.kernels.family import DeviceLimits, Instance, KernelFamily, Work, problem_to_dict
from gputune.kernels.space import Configuration, TuningSpace, configuration_key
from gputune.runtime.measuring.successive_halving import ENOUGH
from gputune.runtime.measuring.timing import MEASURING_VERSION

BATCH = 8
"""Variants in one request: what a killed run has to measure again at most."""

GAIN = 0.01
"""A share of the best time by which something must be faster to count as better."""

COLD = "gputune.cold"
"""The setting that keeps what was measured with cold caches apart from the rest."""

FEATURE = "gputune.feature."
"""The prefix of settings that name the features of a device, of a task those for which it asks."""

DEADLY = ("timeout", "crash")
"""Statuses of what costs the target its worker."""


def device_limits(
    device: DeviceIdentity,
    form: ArgumentForm | None = None,
    features: frozenset[str] = frozenset(),
    launch_ns: float = 0,
) -> DeviceLimits:
    """Return the properties of a device that constraints and kernels depend on. form: how launches take tensors that
    lie in arenas; None if that was not measured. features: those that it has proven. launch_ns: as of DeviceLimits."""
    return as_kind(
        DeviceLimits,
        device,
        standard=standard_of(device),
        extensions=frozenset(device.extensions),
        features=features,
        argument_form=form or usual_form(device),
        family="" if device.device_type == "cpu" else device.tier.family,
        launch_ns=launch_ns,
        register_cap=quirks_of(device).register_cap,
    )


def task_key(task: Task) -> TaskKey:
    """Return what the task computes, as the performance cache knows it."""
    problem = problem_to_dict(task.problem)
    return TaskKey(op=identity_of(task.op), problem=problem, dtype=task.problem.dtype, layout=problem.get("layout", ""))


def space_of(task: Task, limits: DeviceLimits) -> TuningSpace:
    """Return the configurations that are legal for the task on the device: one object for equal tasks, since it may
    take seconds to count what it holds."""
    return _space(family_of(task.op), task.problem, limits_for(task, limits))


def limits_for(task: Task, limits: DeviceLimits) -> DeviceLimits:
    """Return the limits as a task sees them: with the features for which it asks, so that others change nothing for
    it."""
    return replace(limits, features=limits.features & asked_by([task], limits)) if limits.features else limits


def asked_by(tasks: Iterable[Task], limits: DeviceLimits) -> frozenset[str]:
    """Return the features for which the spaces of tasks ask, whatever the device has proven."""
    bare = replace(limits, features=frozenset())
    return frozenset(name for task in tasks for name in _space(family_of(task.op), task.problem, bare).asks)


@lru_cache(maxsize=1024)
def _space(family: KernelFamily, problem: Any, limits: DeviceLimits) -> TuningSpace:
    return family.space(problem, limits)


def default_of(task: Task, limits: DeviceLimits) -> dict[str, int]:
    """Return the default configuration. Raises TuningError when the device has room for none."""
    try:
        return family_of(task.op).default(task.problem, limits_for(task, limits))
    except ValueError as error:
        raise TuningError(f"{task.op} does not fit on this device: {error}") from None


def check_legal(configuration: Configuration, space: TuningSpace, default: Configuration, whose: str) -> None:
    """Raise ConfigError with the parameters, their legal values and the default for a configuration that the space
    does not have. whose: the message begins with it."""
    if wrong := space.violations(configuration):
        legal = "; ".join(map(str, space.parameters))
        usual = ",".join(f"{name}={value}" for name, value in default.items())
        raise ConfigError(f"{whose}: {'; '.join(wrong)}. Its parameters are {legal}. The default is {usual}")


def source_sha256(task: Task, limits: DeviceLimits) -> str:
    """Identity of a task's kernels on a kind of device: of what its default renders to where there is room for
    everything, so that it does not depend on which default a process finds room for. Raises TuningError."""
    default = default_of(task, limits.unbounded)
    return rendered_sha256(family_of(task.op).rendered(task.problem, default, limits))


def _proven(space: TuningSpace, limits: DeviceLimits) -> dict[str, str]:
    """Return the settings that say whether the device has proven each feature for which a space asks."""
    return {FEATURE + name: "proven" if name in limits.features else "not proven" for name in space.asks}


def cost_of(record: TrialRecord) -> float | None:
    """Return what a trial that worked is ranked by: its median, in nanoseconds, as it would be on a device that is as
    fast as when the task was begun."""
    return None if record.status != OK or record.median_ns is None else record.median_ns / drift_of(record)


def drift_of(record: TrialRecord) -> float:
    """By how much slower the device was when this was measured, 1 where nothing is known of that."""
    drift = record.measured.get("drift")
    return float(drift) if isinstance(drift, float | int) and 0 < drift < float("inf") else 1.0


def since_gain(costs: Sequence[float | None]) -> int:
    """Return how many trials in a row, the last ones, have brought nothing better; 0 while none has worked. costs: of
    trials in the order of their arrival, None of those that failed."""
    best, last = math.inf, len(costs) - 1
    for place, cost in enumerate(costs):
        if cost is not None and cost < best * (1 - GAIN):
            best, last = cost, place
    return len(costs) - 1 - last


class TaskSearch:
    """The search for one task's best configuration on one device.

    `base` is how many configurations the effort has for it, `most` how many it may get where others leave theirs.
    """

    def __init__(
        self,
        task: Task,
        device: DeviceIdentity,
        limits: DeviceLimits,
        effort: Effort,
        settings: Mapping[str, str],
        strategy: str = "auto",
        cold: bool = False,
    ) -> None:
        self.task = task
        self._limits = limits = limits_for(task, limits)
        self.family = family_of(task.op)
        self.space = space_of(task, limits)
        self.default = default_of(task, limits)
        self.key = task_key(task)
        measured_under = {**settings, **_proven(self.space, limits)} | ({COLD: "1"} if cold else {})
        self.validity = as_kind(
            Validity,
            device,
            device_name=device.name,
            source_sha256=source_sha256(task, limits),
            space_sha256=self.space.sha256,
            measuring_version=MEASURING_VERSION,
            settings=measured_under,
        )
        self.compiler = compiler_of(device, settings)
        self.title = f"{task.op} {self.key.digest[:10]}"
        self.base = trials_for(effort, self.family.heavy, self.space.size)
        self.most = most_trials(effort, self.space.size)
        self.seed = int(self.key.digest[:15], 16)
        self.seeds: Sequence[Configuration] = ()
        """Configurations for the strategy to begin with; they are not used before `next_batch` needs more than the
        default, `earlier` and the starters."""
        self.strangers: Sequence[Configuration] = ()
        """The like, from devices of other vendors."""
        self.earlier: Sequence[Configuration] = ()
        """What won on this device under other conditions, such as an older source of its kernel: measured next to the
        default, before the starters, which may use up what the effort has for the task."""
        self.known: dict[str, TrialRecord] = {}
        self.resumed = 0
        self.measured = 0
        self.doubt: float | None = None
        """How far off a ratio of its last batch may be, as of `doubt_of`; None while nothing is known of that."""
        self._strategy_name = strategy
        self._strategy: Strategy | None = None
        self._untold: list[Evaluation] = []
        self._again: list[dict[str, int]] = []
        self._baseline: Configuration | None = None
        self._estimate = self.family.estimate(task.problem, limits) if strategy == "auto" else None
        self._starters = self._unestimated(self.family.starters(task.problem, limits))
        self._patience = math.inf if effort.patience is None else effort.patience

    @property
    def strategy(self) -> Strategy:
        if self._strategy is None:
            make = STRATEGIES[self._strategy_name]
            group = () if self._limits.device_type == "cpu" else self.space.group
            self._strategy = make(self.space, self.seed, self.seeds, self.strangers, self._estimate, group)
            self._strategy.tell(self._untold)
            self._untold = []
        return self._strategy

    def _unestimated(self, starters: Iterable[dict[str, int]]) -> list[dict[str, int]]:
        """Return the starters of which the estimate knows nothing, and the first of each other way to compute than the
        default's: on some devices a whole algorithm is slower than estimated. The estimate's best are measured in place
        of the others."""
        kept, ways = [], {way_of(self.default)}
        for one in starters:
            if self._estimate is None or math.isinf(self._estimate(one)) or way_of(one) not in ways:
                kept.append(one)
                ways.add(way_of(one))
        return kept

    def rendered(self, configuration: Configuration) -> Instance:
        """Render a configuration for the device."""
        return self.family.rendered(self.task.problem, configuration, self._limits)

    def rendered_sha256(self, configuration: Configuration) -> str:
        """Identity of what a configuration renders to today."""
        return rendered_sha256(self.rendered(configuration))

    def still_holds(self, configuration: Configuration, sha256: str) -> bool:
        """Return whether a configuration from the cache is legal today and renders to the code that was measured."""
        return not self.lapsed(configuration, sha256)

    def lapsed(self, configuration: Configuration, sha256: str) -> str:
        """Why a configuration from the cache cannot be used today; empty when it can."""
        if wrong := self.space.violations(configuration):
            return f"its configuration is no longer allowed: {'; '.join(wrong)}"
        now = self.rendered_sha256(configuration)
        return "" if now == sha256 else str(Change("rendered_sha256", sha256, now))

    def to_retry(self, records: Iterable[TrialRecord], statuses: Collection[str]) -> list[dict[str, int]]:
        """Return the configurations whose last trial that still holds has one of the statuses."""
        last = self._last_holding(records).values()
        return [dict(record.configuration) for record in last if record.status in statuses]

    def counting(self, records: Iterable[TrialRecord], retry: Collection[str]) -> dict[str, TrialRecord]:
        """Return the last trials that still hold, by configuration, less those that are to be measured again: what
        failed with a status in `retry`, and when all of the rest failed, the default and the starters among them. The
        reason may have gone, such as another program that filled the device's memory; only what takes a worker down is
        not tried again unasked."""
        return self._counting(self._last_holding(records), retry)

    def lacks(self, records: Iterable[TrialRecord]) -> int:
        """Return how many configurations the effort has for the task beyond those of which there are trials that
        hold."""
        return max(self.base - len(self.counting(records, ())), 0)

    def _counting(self, last: Mapping[str, TrialRecord], retry: Collection[str]) -> dict[str, TrialRecord]:
        kept = {key: one for key, one in last.items() if one.status not in retry}
        if all(cost_of(record) is None for record in kept.values()):
            for key in map(configuration_key, self._first()):
                if key in kept and kept[key].status not in DEADLY:
                    del kept[key]
        return kept

    def resume(self, records: Sequence[TrialRecord], retry: Collection[str] = ()) -> None:
        """Take in what an earlier run stored, as far as it counts. What failed with a status in `retry` is measured
        again before anything else."""
        last = self._last_holding(records)
        self.tell(list(last.values()))
        self._again = [dict(record.configuration) for record in last.values() if record.status in retry]
        counting = self._counting(last, retry)
        self.known = {key: record for key, record in self.known.items() if key in counting}
        self.resumed = len(self.known)

    def _last_holding(self, records: Iterable[TrialRecord]) -> dict[str, TrialRecord]:
        """Return the last trial of each configuration that is allowed today and renders to the launches measured
        then."""
        holding = (one for one in records if self.still_holds(one.configuration, one.rendered_sha256))
        return {configuration_key(one.configuration): one for one in holding}

    def tell(self, records: Sequence[TrialRecord]) -> None:
        """Take in results; a configuration that was known gets its newer one, and keeps its place."""
        for record in records:
            self.known[configuration_key(record.configuration)] = record
        told = [Evaluation(record.configuration, cost_of(record)) for record in records]
        if self._strategy is None:
            self._untold += told
        else:
            self._strategy.tell(told)

    @property
    def begun(self) -> bool:
        """Whether the default is known, and what is to be measured again was."""
        return configuration_key(self.default) in self.known and not self._again_waits()

    @property
    def over(self) -> bool:
        """Whether there is nothing more to measure."""
        ended = len(self.known) >= self.most or self._since_gain >= self._patience
        return ended and not self._waiting()

    def next_batch(self, most: int = BATCH) -> list[dict[str, int]]:
        """Return the next configurations to measure, at most so many; empty when the search is over."""
        if self.over:
            return []
        size = min(BATCH, most)
        batch = {configuration_key(configuration): configuration for configuration in self._waiting()[:size]}
        if not self._again_waits():
            size = min(size, max(self.most - len(self.known), len(batch)))
            while len(batch) < size and (asked := self.strategy.ask(size - len(batch))):
                batch |= {configuration_key(configuration): configuration for configuration in asked}
        return list(batch.values())

    def twins(self, batch: Sequence[Configuration]) -> list[TrialRecord]:
        """Trials of those of a batch that render to the launches of something known: they need not be measured."""
        by_launches = {record.rendered_sha256: record for record in self.known.values()}
        found = []
        for configuration in batch:
            twin = by_launches.get(self.rendered_sha256(configuration))
            if twin is not None and configuration_key(configuration) not in self.known:
                same = {**twin.measured, "same_as": configuration_key(twin.configuration)}
                found.append(replace(twin, configuration=configuration, measured=same))
        return found

    def _again_waits(self) -> list[dict[str, int]]:
        return [c for c in self._again if configuration_key(c) not in self.known]

    def _waiting(self) -> list[dict[str, int]]:
        """Return what is measured before the strategy is asked."""
        return self._again_waits() or [dict(c) for c in self._first() if configuration_key(c) not in self.known]

    def _first(self) -> Iterable[Configuration]:
        """Return what is measured first of a task, each once."""
        return {configuration_key(c): c for c in [self.default, *self.earlier, *self._starters]}.values()

    @property
    def work(self) -> Work:
        """The least that the task must do."""
        return self.family.work(self.task.problem)

    @property
    def to_measure_again(self) -> int:
        """How many that had failed have still to be measured again."""
        return len(self._again_waits())

    @property
    def fruitless(self) -> int:
        """How many batches in a row, the last ones, have brought nothing better."""
        return self._since_gain // BATCH

    @property
    def _since_gain(self) -> int:
        return since_gain([cost_of(record) for record in self.known.values()])

    @property
    def batches(self) -> int:
        """How many batches of it were stored, in this run and before."""
        numbers = [record.measured.get("batch") for record in self.known.values()]
        return max((number for number in numbers if isinstance(number, int)), default=-1) + 1

    @property
    def best(self) -> Configuration | None:
        """The configuration in front; None while nothing has worked."""
        return next((record.configuration for record in self._ranked()), None)

    def record(self, configuration: Configuration) -> TrialRecord:
        """Return the last trial of a configuration that is known."""
        return self.known[configuration_key(configuration)]

    def cost(self, configuration: Configuration) -> float | None:
        record = self.known.get(configuration_key(configuration))
        return None if record is None else cost_of(record)

    def time_ns(self, configuration: Configuration) -> float | None:
        """Return the median of a configuration that works, as it was measured."""
        record = self.known.get(configuration_key(configuration))
        return None if record is None or record.status != OK else record.median_ns

    @property
    def best_ns(self) -> float:
        """The least cost, 0 when there is none: the fastest time as it would be on the device as it was at first.

        Of those with ENOUGH samples, where there are some: one that seems fast by chance is no measure for others.
        """
        costs = [(len(one.samples_ns), cost) for one in self.known.values() if (cost := cost_of(one)) is not None]
        sure = [cost for samples, cost in costs if samples >= ENOUGH]
        return min(sure or [cost for _, cost in costs], default=0.0)

    @property
    def baseline(self) -> Configuration | None:
        """What batches are compared by: the default, or the first configuration that worked where it does not. It stays
        the same; None until one works, and when it does so no more."""
        if self._baseline is None:
            working = [record.configuration for record in self.known.values() if record.status == OK]
            self._baseline = self.default if self.default in working else next(iter(working), None)
        return None if self._baseline is None or self.cost(self._baseline) is None else self._baseline

    @property
    def had_baseline(self) -> bool:
        """Whether batches were compared by some configuration, be it that it works no more."""
        return self._baseline is not None

    @property
    def baseline_ns(self) -> float | None:
        """The baseline's time on the device as it was at first; None where there is no baseline yet."""
        return None if self.baseline is None else self.cost(self.baseline)

    @property
    def gained(self) -> float:
        """The share of the baseline's time by which the best is faster; 0 where there is no baseline."""
        return 1 - self.best_ns / baseline_ns if (baseline_ns := self.baseline_ns) else 0.0

    def finalists(self, count: int, before: Configuration | None = None) -> list[dict[str, int]]:
        """Return the default, the best of the rest, so many, and what has won before, as far as they worked."""
        best = [dict(record.configuration) for record in self._ranked()]
        others = [configuration for configuration in best if configuration != self.default]
        last = [one for one in others[count:] if before is not None and one == dict(before)]
        return ([self.default] if self.default in best else []) + others[:count] + last

    def ahead(self, best: Configuration, met: Collection[Configuration], count: int) -> list[dict[str, int]]:
        """Return what is ranked before the best of a comparison without having been in one, so many at most. met: those
        that were."""
        ranked = [dict(record.configuration) for record in self._ranked()]
        return [one for one in ranked[: ranked.index(dict(best))] if one not in met][:count]

    def _ranked(self) -> list[TrialRecord]:
        """Return what works, the least cost first. Of equal ones, as those with the same machine code are, the order is
        that of their texts, not of measuring, which a process that takes over may do in another one."""
        working = [(cost, key) for key, record in self.known.items() if (cost := cost_of(record)) is not None]
        return [self.known[key] for _, key in sorted(working)]

    def side_by_side(self, configurations: Sequence[Configuration]) -> bool:
        """Return whether the last trials of these are of one batch, so that they were compared with each other."""
        batches = {self.record(one).measured.get("batch") for one in configurations}
        return len(batches) == 1 and None not in batches

    def statuses(self) -> dict[str, int]:
        """Return the number of configurations by the status of their last trial."""
        return dict(sorted(Counter(record.status for record in self.known.values()).items()))

    def failures(self) -> str:
        """Return each way in which trials failed, with one example."""
        examples = {record.status: record.message for record in self.known.values() if record.status != OK}
        return "; ".join(f"{status}: {message}" for status, message in examples.items())
