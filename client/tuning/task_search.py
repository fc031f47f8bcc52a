"""The search over one task's space: its identity in the cache, what is known, what to measure next, who is in front."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from gputune.cache import TaskKey, TrialRecord, Validity
from gputune.client.errors import TuningError
from gputune.client.plan import Task
from gputune.client.tuning.effort import Effort, trials_for
from gputune.client.tuning.stop_conditions import NoImprovement, StopCondition, Trials
from gputune.client.tuning.strategies import Evaluation, Strategy
from gputune.client.tuning.strategies.exhaustive import Exhaustive
from gputune.client.tuning.strategies.random import RandomSearch
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits, Instance, problem_to_dict
from gputune.kernels.space import Configuration, configuration_key
from gputune.runtime.identity import DeviceIdentity
from gputune.runtime.measure import MEASURING_VERSION

BATCH = 8
"""Variants in one request: what a killed run has to measure again at most."""

OK = "ok"
DEADLY = ("timeout", "crash")
"""Statuses of what costs the target its worker."""


def device_limits(device: DeviceIdentity) -> DeviceLimits:
    """What constraints need to know of a device."""
    return DeviceLimits(
        max_work_group_size=device.max_work_group_size,
        max_work_item_sizes=device.max_work_item_sizes,
        local_memory_bytes=device.local_memory_bytes,
        max_allocation_bytes=device.max_allocation_bytes,
        compute_units=device.compute_units,
        device_type=device.device_type,
        preferred_float_width=device.preferred_float_width,
    )


def task_key(task: Task) -> TaskKey:
    """What the task computes, as the performance cache knows it."""
    problem = problem_to_dict(task.problem)
    return TaskKey(op=task.op, problem=problem, dtype=task.problem.dtype, layout=problem.get("layout", ""))


def default_of(task: Task, limits: DeviceLimits) -> dict[str, int]:
    """The default configuration. Raises TuningError when the device has room for none."""
    try:
        return family_of(task.op).default(task.problem, limits)
    except ValueError as error:
        raise TuningError(f"{task.op} does not fit on this device: {error}") from None


def rendered_sha256(instance: Instance) -> str:
    """Identity of the launches that a configuration was rendered to.

    It covers templates, the text of fused chains, and how sizes become options, grids, arguments and packed buffers.
    """
    packed = sorted(instance.packed.items())
    return hashlib.sha256(repr((instance.prepare, instance.main, packed)).encode()).hexdigest()


def cost_of(record: TrialRecord) -> float | None:
    """What a trial that worked is ranked by: its median, in nanoseconds, as it would be on a device that is as fast as
    when the task was begun."""
    return None if record.status != OK or record.median_ns is None else record.median_ns / drift_of(record)


def drift_of(record: TrialRecord) -> float:
    """By how much slower the device was when this was measured, 1 where nothing is known of that."""
    drift = record.measured.get("drift")
    return float(drift) if isinstance(drift, float | int) and 0 < drift < float("inf") else 1.0


class TaskSearch:
    """The search for one task's best configuration on one device."""

    def __init__(
        self, task: Task, device: DeviceIdentity, limits: DeviceLimits, effort: Effort, settings: Mapping[str, str]
    ) -> None:
        self.task = task
        self.family = family_of(task.op)
        self.space = self.family.space(task.problem, limits)
        self.default = default_of(task, limits)
        self.key = task_key(task)
        self.validity = Validity(
            device_name=device.name,
            platform=device.platform,
            driver_version=device.driver_version,
            compute_units=device.compute_units,
            source_sha256=self.rendered_sha256(self.default),
            space_sha256=self.space.sha256,
            measuring_version=MEASURING_VERSION,
            vendor=device.vendor,
            platform_version=device.platform_version,
            device_version=device.device_version,
            device_type=device.device_type,
            settings=settings,
        )
        self.title = f"{task.op} {self.key.digest[:10]}"
        self.budget = trials_for(effort, task.op, self.space.size)
        self.seed = int(self.key.digest[:15], 16)
        self.known: dict[str, TrialRecord] = {}
        self.resumed = 0
        self.measured = 0
        self._again: list[dict[str, int]] = []
        self._baseline: Configuration | None = None
        self._first = [self.default, *self.family.starters(task.problem, limits)]
        self._stop: StopCondition = Trials(self.budget)
        if effort.patience is not None:
            self._stop = Trials(self.budget) | NoImprovement(effort.patience)
        self._strategy: Strategy | None = None

    @property
    def strategy(self) -> Strategy:
        if self._strategy is None:
            whole = self.budget >= self.space.size
            self._strategy = Exhaustive(self.space) if whole else RandomSearch(self.space, self.seed)
        return self._strategy

    def rendered_sha256(self, configuration: Configuration) -> str:
        """Identity of what a configuration renders to today."""
        return rendered_sha256(self.family.render(self.task.problem, configuration))

    def still_holds(self, configuration: Configuration, sha256: str) -> bool:
        """Whether a configuration from the cache is legal today and renders to the code that was measured."""
        return not self.space.violations(configuration) and self.rendered_sha256(configuration) == sha256

    def to_retry(self, records: Iterable[TrialRecord], statuses: Collection[str]) -> list[dict[str, int]]:
        """The configurations whose last trial that still holds has one of the statuses."""
        last = {configuration_key(record.configuration): record for record in self._holding(records)}
        return [dict(record.configuration) for record in last.values() if record.status in statuses]

    def resume(self, records: Sequence[TrialRecord], retry: Collection[str] = ()) -> None:
        """Takes in what an earlier run stored, as far as it still holds. What failed with a status in `retry` is
        measured again before anything else.

        When all of that failed, so are the default and the starters: the reason may have gone, such as another program
        that filled the device's memory. Only what takes a worker down is not tried again unasked.
        """
        self.tell(self._holding(records))
        self._again = self.to_retry(records, retry)
        for configuration in self._again:
            del self.known[configuration_key(configuration)]
        if all(cost_of(record) is None for record in self.known.values()):
            for key in map(configuration_key, self._first):
                if key in self.known and self.known[key].status not in DEADLY:
                    del self.known[key]
        self.resumed = len(self.known)

    def _holding(self, records: Iterable[TrialRecord]) -> list[TrialRecord]:
        return [record for record in records if self.still_holds(record.configuration, record.rendered_sha256)]

    def tell(self, records: Sequence[TrialRecord]) -> None:
        """Takes in results; a configuration that was known gets its newer one, and keeps its place."""
        for record in records:
            self.known[configuration_key(record.configuration)] = record
        self.strategy.tell([Evaluation(record.configuration, cost_of(record)) for record in records])

    def next_batch(self) -> list[dict[str, int]]:
        """The next configurations to measure; empty when the search is over."""
        if again := [c for c in self._again if configuration_key(c) not in self.known]:
            return again[:BATCH]
        if self._stop.progress([cost_of(record) for record in self.known.values()]) >= 1:
            return []
        size = min(BATCH, self.budget - len(self.known))
        fresh = (dict(c) for c in self._first if configuration_key(c) not in self.known)
        batch = {configuration_key(configuration): configuration for configuration in fresh}
        while len(batch) < size and (asked := self.strategy.ask(size - len(batch))):
            batch |= {configuration_key(configuration): configuration for configuration in asked}
        return list(batch.values())[:size]

    @property
    def left(self) -> int:
        """How many variants have still to be measured at most, finalists not counted."""
        again = sum(configuration_key(configuration) not in self.known for configuration in self._again)
        return again + max(0, self.budget - len(self.known) - again)

    def cost(self, configuration: Configuration) -> float | None:
        record = self.known.get(configuration_key(configuration))
        return None if record is None else cost_of(record)

    def time_ns(self, configuration: Configuration) -> float | None:
        """The median of a configuration that works, as it was measured."""
        record = self.known.get(configuration_key(configuration))
        return None if record is None or record.status != OK else record.median_ns

    @property
    def best_ns(self) -> float:
        """The fastest time measured, 0 when there is none."""
        working = (record.median_ns for record in self.known.values() if record.status == OK)
        return min((median_ns for median_ns in working if median_ns is not None), default=0.0)

    @property
    def baseline(self) -> Configuration | None:
        """What batches are compared by: the default, or the first configuration that worked where it does not. It stays
        the same; None until one works, and when it does so no more."""
        if self._baseline is None:
            working = [record.configuration for record in self.known.values() if record.status == OK]
            self._baseline = self.default if self.default in working else next(iter(working), None)
        return None if self._baseline is None or self.cost(self._baseline) is None else self._baseline

    def baseline_samples(self) -> list[float]:
        """What an earlier run measured of the baseline, in nanoseconds on the task's first level."""
        if self.baseline is None:
            return []
        record = self.known[configuration_key(self.baseline)]
        return [sample / drift_of(record) for sample in record.samples_ns]

    def finalists(self, count: int) -> list[dict[str, int]]:
        """The default and the best of the rest, as far as they worked."""
        ranked = sorted((r for r in self.known.values() if cost_of(r) is not None), key=lambda r: cost_of(r) or 0.0)
        best = [dict(record.configuration) for record in ranked]
        others = [configuration for configuration in best if configuration != self.default]
        return ([self.default] if self.default in best else []) + others[:count]

    def statuses(self) -> dict[str, int]:
        """Number of configurations by the status of their last trial."""
        return dict(sorted(Counter(record.status for record in self.known.values()).items()))

    def failures(self) -> str:
        """Each way in which trials failed, with one example."""
        examples = {record.status: record.message for record in self.known.values() if record.status != OK}
        return "; ".join(f"{status}: {message}" for status, message in examples.items())
