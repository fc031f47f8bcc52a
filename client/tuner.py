"""Finds the fastest verified configuration of each task.

Per task: a concluded winner in the performance cache is used after it was validated against today's space. Otherwise
the default and the family's starters are measured first, then what the strategy asks for, batch by batch, until a
stop condition ends it. Trials that an interrupted run left in the cache are told to the strategy and not measured
again. The finalists are measured once more, side by side, and the default configuration wins a tie.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.cache import PerformanceCache, TaskKey, TrialRecord, Validity, WinnerRecord
from gputune.client.effort import EFFORTS, Effort, trials_for
from gputune.client.errors import TuningError
from gputune.client.lowering import Task
from gputune.client.rendering import variant_message
from gputune.client.stop_conditions import NoImprovement, StopCondition, Trials
from gputune.client.strategies import Evaluation, Strategy
from gputune.client.strategies.exhaustive import Exhaustive
from gputune.client.strategies.random import RandomSearch
from gputune.client.target_client import TargetClient
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits, problem_to_dict
from gputune.kernels.space import Configuration, TuningSpace, configuration_key
from gputune.runtime.identity import DeviceIdentity
from gputune.runtime.measure import MEASURING_VERSION
from gputune.server.protocol.messages import ProfileKernel, Trial, Work

BATCH = 8
"""Variants in one request: what a killed run has to measure again at most."""

TIE = 0.01
"""A configuration that is not faster than the default by more than this share does not replace it."""

OK = "ok"


@dataclass(frozen=True)
class Outcome:
    """What tuning found for one task; names follow --summary_json."""

    key: str
    op: str
    problem: Mapping[str, Any]
    weight: int
    hit: bool
    resumed: int
    """Trials that an earlier, interrupted run had already stored."""
    space_size: int
    trials: Mapping[str, int]
    """Trials by status, each configuration counted once."""
    measured: int
    """Variants that this run had measured, finalists counted again."""
    default_ns: float | None
    tuned_ns: float | None
    configuration: Configuration
    binary: bytes = field(repr=False)
    """The winner's program binary; empty where it has still to be compiled."""


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
    layout = problem.get("layout", "")
    return TaskKey(op=task.op, problem=problem, dtype=task.problem.dtype, layout=layout)


def validity_of(task: Task, device: DeviceIdentity, space: TuningSpace) -> Validity:
    """Where and how measurements of the task are taken today."""
    limits = device_limits(device)
    return Validity(
        device_name=device.name,
        platform=device.platform,
        driver_version=device.driver_version,
        compute_units=device.compute_units,
        source_sha256=_source_sha256(task, limits),
        space_sha256=space.sha256,
        measuring_version=MEASURING_VERSION,
        vendor=device.vendor,
        platform_version=device.platform_version,
        device_version=device.device_version,
        device_type=device.device_type,
    )


def _source_sha256(task: Task, limits: DeviceLimits) -> str:
    """Identity of the code that a task is made into: what its default configuration renders to.

    That covers the templates, the text of fused chains, and how sizes become options and grids.
    """
    family = family_of(task.op)
    instance = family.render(task.problem, family.default(task.problem, limits))
    return hashlib.sha256(repr((instance.prepare, instance.main)).encode()).hexdigest()


def sample_inputs(task: Task, seed: int) -> dict[str, npt.NDArray[Any]]:
    """Random inputs of a task: activations of unit variance, constants scaled so that results stay near one."""
    generator = np.random.default_rng(seed)
    inputs = {}
    for spec in family_of(task.op).inputs(task.problem):
        values = generator.standard_normal(spec.shape, dtype=np.float32)
        if spec.constant and len(spec.shape) > 1:
            fan_in = int(np.prod(spec.shape[1:])) if len(spec.shape) == 4 else spec.shape[0]
            values /= np.float32(max(1.0, fan_in) ** 0.5)
        inputs[spec.name] = values
    return inputs


def untuned(task: Task, limits: DeviceLimits) -> Outcome:
    """The default configuration, unmeasured: what tuning effort none gives."""
    family, key = family_of(task.op), task_key(task)
    return Outcome(
        key=key.digest,
        op=task.op,
        problem=key.problem,
        weight=task.weight,
        hit=False,
        resumed=0,
        space_size=family.space(task.problem, limits).size,
        trials={},
        measured=0,
        default_ns=None,
        tuned_ns=None,
        configuration=family.default(task.problem, limits),
        binary=b"",
    )


class Tuner:
    """Tunes tasks on one target, remembering every trial in one performance cache.

    `advance(steps, what)` hears of every trial that is done or found to be not needed.
    """

    def __init__(
        self,
        target: TargetClient,
        cache: PerformanceCache,
        effort: Effort,
        advance: Callable[[int, str], None] = lambda steps, what: None,
    ) -> None:
        self._target = target
        self._cache = cache
        self._effort = effort
        self._advance = advance
        self._device = DeviceIdentity.from_dict(target.device)
        self._limits = device_limits(self._device)
        self._searches: dict[Task, _Search] = {}

    def expected_trials(self, task: Task) -> int:
        """How many trials the task will take at most: 0 when the cache answers."""
        search = self._search(task)
        return search.budget if self._concluded(search) is None else 0

    def store_binary(self, outcome: Outcome, task: Task) -> None:
        """Keeps a binary that was compiled at finalize time with the winner it belongs to."""
        search = self._search(task)
        winner = self._cache.winner_of(search.key, search.validity)
        if winner is not None and winner.configuration == outcome.configuration:
            self._cache.conclude(search.key, search.validity, replace(winner, binary=outcome.binary))

    def tune(self, task: Task) -> Outcome:
        """The outcome for one task. Raises TuningError when no variant works, TargetError, CacheError."""
        search = self._search(task)
        winner = self._concluded(search)
        if winner is not None:
            return search.outcome(winner, hit=True)
        search.resume(self._cache.trials_of(search.key, search.validity))
        self._advance(search.resumed, search.title)
        with _Bench(self._target, search) as bench:
            while batch := search.next_batch():
                self._measure(bench, batch, self._effort.samples)
                self._advance(len(batch), search.title)
            self._advance(max(0, search.budget - len(search.known)), search.title)
            winner = self._final(bench, search)
        self._cache.conclude(search.key, search.validity, winner)
        return search.outcome(winner, hit=False)

    def _search(self, task: Task) -> "_Search":
        """The search of a task; made once, because counting a space takes a while."""
        if task not in self._searches:
            self._searches[task] = _Search(task, self._device, self._limits, self._effort)
        return self._searches[task]

    def _concluded(self, search: "_Search") -> WinnerRecord | None:
        winner = self._cache.winner_of(search.key, search.validity)
        if winner is None or search.space.violations(winner.configuration):
            return None
        spent = EFFORTS.get(winner.effort)
        return winner if spent is not None and spent.rank >= self._effort.rank else None

    def _measure(self, bench: "_Bench", batch: Sequence[Configuration], samples: int) -> bytes:
        """Profiles a batch, stores every trial before anything else happens, returns the best one's binary."""
        trials, binary = bench.profile(batch, samples, self._effort)
        records = [_record(configuration, trial) for configuration, trial in zip(batch, trials, strict=True)]
        self._cache.store_trials(bench.search.key, bench.search.validity, records)
        bench.search.tell(records)
        bench.search.measured += len(batch)
        return binary

    def _final(self, bench: "_Bench", search: "_Search") -> WinnerRecord:
        finalists = search.finalists(self._effort.finalists)
        if not finalists:
            raise TuningError(f"{search.title}: no configuration works: {search.failures()}")
        binary = self._measure(bench, finalists, 2 * self._effort.samples)
        placed = [(c, search.cost(c)) for c in finalists]
        ranked = sorted(((cost, c) for c, cost in placed if cost is not None), key=lambda pair: pair[0])
        if not ranked:
            raise TuningError(f"{search.title}: no finalist works any more: {search.failures()}")
        best_ns, best = ranked[0]
        default_ns = search.cost(search.default)
        if default_ns is not None and best != search.default and best_ns >= default_ns * (1 - TIE):
            best_ns, best, binary = default_ns, search.default, b""
        return WinnerRecord(
            configuration=best,
            median_ns=best_ns,
            default_ns=default_ns,
            effort=self._effort.name,
            binary=binary,
            trials=search.statuses(),
        )


class _Search:
    """The search over one task's space: what is known, what to measure next, who is in front."""

    def __init__(self, task: Task, device: DeviceIdentity, limits: DeviceLimits, effort: Effort) -> None:
        self.task = task
        self.family = family_of(task.op)
        self.space = self.family.space(task.problem, limits)
        self.default = self.family.default(task.problem, limits)
        self.key = task_key(task)
        self.validity = validity_of(task, device, self.space)
        self.title = f"{task.op} {self.key.digest[:10]}"
        self.budget = trials_for(effort, task.op, self.space.size)
        self.seed = int(self.key.digest[:15], 16)
        self.known: dict[str, TrialRecord] = {}
        self.resumed = 0
        self.measured = 0
        self._effort = effort
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

    def resume(self, records: Iterable[TrialRecord]) -> None:
        """Takes in what an earlier run stored; trials that today's space forbids are left out."""
        self.tell([record for record in records if not self.space.violations(record.configuration)])
        self.resumed = len(self.known)

    def tell(self, records: Sequence[TrialRecord]) -> None:
        for record in records:
            key = configuration_key(record.configuration)
            self.known.pop(key, None)
            self.known[key] = record
        self.strategy.tell([Evaluation(record.configuration, _cost(record)) for record in records])

    def next_batch(self) -> list[dict[str, int]]:
        """The next configurations to measure; empty when the search is over."""
        if self._stop.progress([_cost(record) for record in self.known.values()]) >= 1:
            return []
        size = min(BATCH, self.budget - len(self.known))
        batch: list[dict[str, int]] = []
        for configuration in self._first:
            if len(batch) < size and configuration_key(configuration) not in self.known and configuration not in batch:
                batch.append(dict(configuration))
        if len(batch) < size:
            self.strategy.tell([Evaluation(configuration, None) for configuration in batch])
            batch += self.strategy.ask(size - len(batch))
        return batch

    def cost(self, configuration: Configuration) -> float | None:
        record = self.known.get(configuration_key(configuration))
        return None if record is None else _cost(record)

    def finalists(self, count: int) -> list[dict[str, int]]:
        """The default and the best of the rest, as far as they worked."""
        ranked = sorted((r for r in self.known.values() if _cost(r) is not None), key=lambda r: _cost(r) or 0.0)
        best = [dict(record.configuration) for record in ranked]
        others = [configuration for configuration in best if configuration != self.default]
        return ([self.default] if self.default in best else []) + others[:count]

    def statuses(self) -> dict[str, int]:
        return dict(sorted(Counter(record.status for record in self.known.values()).items()))

    def failures(self) -> str:
        """Each way in which trials failed, with one example."""
        examples = {record.status: record.message for record in self.known.values() if record.status != OK}
        return "; ".join(f"{status}: {message}" for status, message in examples.items())

    def outcome(self, winner: WinnerRecord, hit: bool) -> Outcome:
        return Outcome(
            key=self.key.digest,
            op=self.task.op,
            problem=self.key.problem,
            weight=self.task.weight,
            hit=hit,
            resumed=self.resumed,
            space_size=self.space.size,
            trials=winner.trials,
            measured=self.measured,
            default_ns=winner.default_ns,
            tuned_ns=winner.median_ns,
            configuration=winner.configuration,
            binary=winner.binary,
        )


class _Bench:
    """A task's inputs and reference output on the target, for as long as the task is being tuned."""

    def __init__(self, target: TargetClient, search: _Search) -> None:
        self.search = search
        self._target = target
        self._buffers: dict[str, int] = {}
        self._reference: int | None = None

    def __enter__(self) -> "_Bench":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        handles = [*self._buffers.values(), *([] if self._reference is None else [self._reference])]
        if handles and kind is None:  # after an error the connection may be gone, and its buffers with it
            self._target.free(*handles)

    def profile(self, batch: Sequence[Configuration], samples: int, effort: Effort) -> tuple[tuple[Trial, ...], bytes]:
        search = self.search
        family, problem = search.family, search.task.problem
        if self._reference is None:
            inputs = sample_inputs(search.task, search.seed)
            self._reference = self._target.upload(family.reference(problem, inputs).astype(np.float32))
            for name, values in inputs.items():
                self._buffers[name] = self._target.upload(values)
        tolerance, work = family.tolerance(problem), family.work(problem)
        profiled = self._target.profile_kernel(
            ProfileKernel(
                task=search.title,
                buffers=self._buffers,
                output_bytes=family.output(problem).nbytes,
                reference=self._reference,
                relative=tolerance.relative,
                absolute=tolerance.absolute,
                variants=tuple(variant_message(family.render(problem, c), c) for c in batch),
                work=Work(work.flops, work.bytes),
                samples=samples,
                sample_ns=effort.sample_ns,
                warm_up_ns=effort.warm_up_ns,
            )
        )
        return profiled.trials, bytes(profiled.binary)


def _cost(record: TrialRecord) -> float | None:
    return record.median_ns if record.status == OK else None


def _record(configuration: Configuration, trial: Trial) -> TrialRecord:
    """A trial as the cache keeps it; the wall times are kept with how it was measured."""
    measured = {**trial.measured, "wall_ns": list(trial.wall_ns)} if trial.samples_ns else dict(trial.measured)
    return TrialRecord(
        configuration=dict(configuration),
        status=trial.status,
        samples_ns=trial.samples_ns,
        compile_ns=trial.compile_ns + trial.first_launch_ns if trial.compile_ns or trial.first_launch_ns else None,
        message=trial.message,
        measured=measured,
    )
