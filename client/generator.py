"""The context binary generator: checks first, then import, lowering, tuning, finalizing and writing."""

import hashlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gputune.cache import PerformanceCache, check_writable, tier_of
from gputune.client import context_builder
from gputune.client.alternatives import Alternatives
from gputune.client.config import Config
from gputune.client.context_race import ContextRace
from gputune.client.credentials import NONE, Credentials
from gputune.client.importer import read_model
from gputune.client.in_chain import Decision, InChain
from gputune.client.outputs import check_output, writing
from gputune.client.plan import Task
from gputune.client.progress import Reporter
from gputune.client.report import write_report
from gputune.client.summary import Totals, summarise, write_json
from gputune.client.target import AdbRequest
from gputune.client.target_client import TargetClient
from gputune.client.targets import choose_targets
from gputune.client.tuning.effort import Effort
from gputune.client.tuning.options import TuningOptions
from gputune.client.tuning.outcome import Outcome, untuned
from gputune.client.tuning.task_search import device_limits, task_key
from gputune.client.tuning.tuner import Tuner, names_of
from gputune.runtime.context_format import write_context
from gputune.runtime.context_records import Context
from gputune.runtime.devices import SIMULATED
from gputune.runtime.identity import DeviceIdentity
from gputune.server.protocol.connection import software_version

CHAIN_SHARE = 0.15
"""Of a budget, what is kept back to compare whole contexts."""


@dataclass(frozen=True)
class GenerationRequest:
    """Everything that a generation depends on."""

    model: Path
    input_dimensions: Mapping[str, tuple[int, ...]]
    binary_file: Path
    config: Config
    effort: Effort
    performance_cache_dir: Path
    target: str | None = None
    device: str | None = None
    credentials: Credentials = NONE
    adb: AdbRequest | None = None
    tuning: TuningOptions = field(default_factory=TuningOptions)
    summary_json: Path | None = None


@dataclass
class _Clock:
    """Wall seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began


def generate(request: GenerationRequest, environment: Mapping[str, str], reporter: Reporter) -> dict[str, Any]:
    """Generates a context binary and returns the summary. Raises GputuneError, CacheError.

    Nothing is written, and nothing in a cache is invalidated, before every check has passed.
    """
    clock = _Clock()
    with clock.phase("total"):
        with clock.phase("check"):
            _check_outputs(request)
        with clock.phase("import"):
            graph = read_model(request.model, request.input_dimensions)
        with clock.phase("lower"):
            model = Alternatives(graph)
        with clock.phase("check"):
            request.tuning.check_bound([names_of(task, model.nodes_of.get(task, ())) for task in model.tasks])
        found = f"{len(model.plan.operations)} operations, {len(model.plan.tasks)} tasks"
        reporter.info(f"model {request.model.name}: {found}, {len(model.groups)} groups that may be fused")
        with clock.phase("check"):
            chosen = choose_targets(
                request.target,
                environment,
                request.device,
                log_level=reporter.level,
                credentials=request.credentials,
                adb=request.adb,
                notice=reporter.warn,
                speaker=reporter,
            )
        with chosen:
            for line in chosen.explanation:
                reporter.info(line)
            with clock.phase("check"):
                clients = chosen.connect_all()
            generation = _Generation(request, model, clients, clock, reporter)
            generation.run()
    requests: Counter[str] = sum((client.requests for client in clients), Counter())
    totals = Totals(requests["profile"], requests["compile"], clock.seconds)
    summary = summarise(generation.outcomes, totals, generation.in_chain)
    if request.summary_json is not None:
        write_json(request.summary_json, summary)
    return summary


class _Generation:
    """One generation on connected targets, of which the first also packs weights and compiles."""

    def __init__(
        self,
        request: GenerationRequest,
        model: Alternatives,
        clients: Sequence[TargetClient],
        clock: _Clock,
        reporter: Reporter,
    ) -> None:
        self._request = request
        self._model = model
        self._clients = clients
        self._client = client = clients[0]
        self._clock = clock
        self._reporter = reporter
        self._device = DeviceIdentity.from_dict(client.device)
        self._tier = tier_of(
            self._device.name, self._device.compute_units, self._device.vendor, self._device.device_version
        )
        self._computes = self._device.platform not in SIMULATED
        self._compares = self._computes and request.effort.contexts > 1
        self._tasks = model.tasks if self._compares else model.plan.tasks
        self.outcomes: list[Outcome] = []
        self.in_chain: Mapping[str, Any] | None = None

    def run(self) -> None:
        """The whole generation. With tuning effort none no cache is read or written."""
        if self._request.effort.name == "none":
            self._reporter.info("tuning effort none: default configurations, no performance cache")
            limits = device_limits(self._device)
            self._make(Decision(self._model.plan, _by_key(untuned(task, limits) for task in self._tasks)), None)
            return
        path = self._request.performance_cache_dir / self._tier.file_name
        self._reporter.info(f"performance cache {path}")
        with PerformanceCache.open(path, warn=self._reporter.warn) as cache:
            budget_seconds = self._request.tuning.budget_seconds
            deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
            options = self._request.tuning
            if budget_seconds is not None and self._compares:
                options = replace(options, budget_seconds=budget_seconds * (1 - CHAIN_SHARE))
            tuner = Tuner(self._clients, cache, self._request.effort, self._reporter, options, self._model.nodes_of)
            tuner.check(self._tasks)
            fingerprint = self._fingerprint()
            begun = cache.begin_generation(fingerprint, self._request.config.invalidate_performance_cache)
            if begun.invalidated:
                self._reporter.info("performance cache invalidated: starting from nothing")
            elif begun.resumed:
                self._reporter.info("resuming an interrupted generation: what it measured is not measured again")
            with self._clock.phase("tune"):
                outcomes = self._tune(tuner, options)
            with self._clock.phase("chain"):
                decision = self._decide(outcomes, tuner, cache, deadline)
            self._make(decision, tuner)
            cache.finish_generation(fingerprint)
        if (report := self._request.tuning.report) is not None:
            write_report(path, report, self._request.binary_file)
            self._reporter.info(f"wrote the report {report}")

    def _make(self, decision: Decision, tuner: Tuner | None) -> None:
        """Finalizes and writes what was decided."""
        weights = {task_key(task).digest: task.weight for task in decision.plan.tasks}
        self.outcomes = [replace(one, weight=weights.get(key, 0)) for key, one in decision.outcomes.items()]
        self.in_chain = decision.summary
        with self._clock.phase("finalize"):
            built = context_builder.build(decision.plan, decision.outcomes, self._client, _keeping(tuner))
        with self._clock.phase("write"):
            self._write(built)

    def _fingerprint(self) -> str:
        """What makes a rerun the same generation: the model's bytes, the effort, the dimensions."""
        request = self._request
        asked = [request.effort.name, sorted(request.input_dimensions.items()), self._tier.name]
        digest = hashlib.sha256(json.dumps(asked).encode())
        with request.model.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()

    def _tune(self, tuner: Tuner, options: TuningOptions) -> dict[str, Outcome]:
        number = itertools.count(1)

        def done(outcome: Outcome) -> None:
            self._reporter.info(f"[{next(number)}/{len(self._tasks)}] {_describe(outcome)}")

        optional = [group.task for group in self._model.groups]
        with self._reporter:
            self._reporter.begin("tuning", tuner.expected_trials(self._tasks), options.budget_seconds)
            return _by_key(tuner.tune(self._tasks, done, optional))

    def _decide(
        self, outcomes: dict[str, Outcome], tuner: Tuner, cache: PerformanceCache, deadline: float | None
    ) -> Decision:
        """Which plan and which of the finalists: those that are fastest in the whole model, where that can be known."""
        if not self._compares:
            return Decision(self._model.plan, outcomes)
        race = ContextRace(
            self._client,
            lambda built, path: write_context(path, self._context(built)),
            tuner.store_binary,
            self._reporter,
            deadline,
        )
        contexts = self._request.effort.contexts
        return InChain(self._model, tuner, cache, self._reporter, contexts).decide(outcomes, race)

    def _context(self, built: context_builder.Built) -> Context:
        return Context(
            graphs=[built.graph],
            programs=built.programs,
            weights=built.weights,
            device=self._client.device,
            tier=self._tier.name,
            configuration=self._effective_configuration(),
            versions={
                "gputune": software_version(),
                "platform": self._device.platform_version,
                "driver": self._device.driver_version,
            },
            computes=self._computes,
        )

    def _write(self, built: context_builder.Built) -> None:
        path = self._request.binary_file
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            size = write_context(path, self._context(built))
        self._reporter.info(f"wrote {path} ({size} bytes)")

    def _effective_configuration(self) -> dict[str, Any]:
        request = self._request
        return {
            "tuning_mode": request.effort.name != "none",
            "tuning_effort": request.effort.name,
            "tuning_strategy": request.tuning.strategy,
            "cold": request.tuning.cold,
            "performance_cache_dir": str(request.performance_cache_dir),
            "invalidate_performance_cache": request.config.invalidate_performance_cache,
            "input_dimensions": {name: list(shape) for name, shape in request.input_dimensions.items()},
        }


def _by_key(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    return {outcome.key: outcome for outcome in outcomes}


def _keeping(tuner: Tuner | None) -> Callable[[Task, Outcome], None]:
    """What becomes of a binary that is compiled."""
    return (lambda task, outcome: None) if tuner is None else tuner.store_binary


def _check_outputs(request: GenerationRequest) -> None:
    """That all results can be written, before anything takes time."""
    for path in filter(None, (request.binary_file, request.summary_json, request.tuning.report)):
        check_output(path)
    if request.effort.name != "none":
        check_writable(request.performance_cache_dir)


def _describe(outcome: Outcome) -> str:
    """One line for people about what became of a task."""
    name = f"{outcome.op} {outcome.key[:10]}"
    if outcome.tuned_ns is None:
        return f"{name}: default configuration, not measured"
    gain = "" if outcome.default_ns is None else f", {outcome.default_ns / outcome.tuned_ns:.2f}x the default"
    source = "from the cache" if outcome.hit else f"{sum(outcome.trials.values())} trials"
    return f"{name}: {outcome.tuned_ns / 1000:.1f} us{gain} ({source})"
