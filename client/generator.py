"""The context binary generator: checks first, then import, lowering, tuning, finalizing and writing."""

import hashlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gputune.cache import PerformanceCache, check_writable, tier_of
from gputune.client import context_builder
from gputune.client.config import Config
from gputune.client.credentials import NONE, Credentials
from gputune.client.importer import read_model
from gputune.client.lowering import Plan, lower
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
from gputune.client.tuning.task_search import device_limits
from gputune.client.tuning.tuner import Tuner, names_of
from gputune.runtime.context_format import write_context
from gputune.runtime.context_records import Context
from gputune.runtime.devices import SIMULATED
from gputune.runtime.identity import DeviceIdentity
from gputune.server.protocol.connection import software_version


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
            plan = lower(graph)
        with clock.phase("check"):
            request.tuning.check_bound([names_of(task, plan.nodes_of.get(task, ())) for task in plan.tasks])
        reporter.info(f"model {request.model.name}: {len(plan.operations)} operations, {len(plan.tasks)} tasks")
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
            generation = _Generation(request, plan, clients, clock, reporter)
            generation.run()
    requests: Counter[str] = sum((client.requests for client in clients), Counter())
    totals = Totals(requests["profile"], requests["compile"], clock.seconds)
    summary = summarise(generation.outcomes, totals)
    if request.summary_json is not None:
        write_json(request.summary_json, summary)
    return summary


class _Generation:
    """One generation on connected targets, of which the first also packs weights and compiles."""

    def __init__(
        self,
        request: GenerationRequest,
        plan: Plan,
        clients: Sequence[TargetClient],
        clock: _Clock,
        reporter: Reporter,
    ) -> None:
        self._request = request
        self._plan = plan
        self._clients = clients
        self._client = client = clients[0]
        self._clock = clock
        self._reporter = reporter
        self._device = DeviceIdentity.from_dict(client.device)
        self._tier = tier_of(
            self._device.name, self._device.compute_units, self._device.vendor, self._device.device_version
        )
        self._tuner: Tuner | None = None
        self.outcomes: list[Outcome] = []

    def run(self) -> None:
        """The whole generation. With tuning effort none no cache is read or written."""
        if self._request.effort.name == "none":
            self._reporter.info("tuning effort none: default configurations, no performance cache")
            self._make()
            return
        path = self._request.performance_cache_dir / self._tier.file_name
        self._reporter.info(f"performance cache {path}")
        with PerformanceCache.open(path, warn=self._reporter.warn) as cache:
            self._tuner = Tuner(
                self._clients, cache, self._request.effort, self._reporter, self._request.tuning, self._plan.nodes_of
            )
            self._tuner.check(self._plan.tasks)
            fingerprint = self._fingerprint()
            begun = cache.begin_generation(fingerprint, self._request.config.invalidate_performance_cache)
            if begun.invalidated:
                self._reporter.info("performance cache invalidated: starting from nothing")
            elif begun.resumed:
                self._reporter.info("resuming an interrupted generation: what it measured is not measured again")
            self._make()
            cache.finish_generation(fingerprint)
        if (report := self._request.tuning.report) is not None:
            write_report(path, report, self._request.binary_file)
            self._reporter.info(f"wrote the report {report}")

    def _make(self) -> None:
        with self._clock.phase("tune"):
            self._tune()
        with self._clock.phase("finalize"):
            built = context_builder.build(
                self._plan,
                {outcome.key: outcome for outcome in self.outcomes},
                self._client,
                self._store_binary,
            )
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

    def _tune(self) -> None:
        tasks = self._plan.tasks
        if self._tuner is None:
            limits = device_limits(self._device)
            self.outcomes = [untuned(task, limits) for task in tasks]
            return
        number = itertools.count(1)

        def done(outcome: Outcome) -> None:
            self._reporter.info(f"[{next(number)}/{len(tasks)}] {_describe(outcome)}")

        with self._reporter:
            expected = self._tuner.expected_trials(tasks)
            self._reporter.begin("tuning", expected, self._request.tuning.budget_seconds)
            self.outcomes = self._tuner.tune(tasks, done)

    def _store_binary(self, task: Task, outcome: Outcome) -> None:
        if self._tuner is not None:
            self._tuner.store_binary(task, outcome)

    def _write(self, built: context_builder.Built) -> None:
        request = self._request
        context = Context(
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
            computes=self._device.platform not in SIMULATED,
        )
        with writing(request.binary_file):
            request.binary_file.parent.mkdir(parents=True, exist_ok=True)
            size = write_context(request.binary_file, context)
        self._reporter.info(f"wrote {request.binary_file} ({size} bytes)")

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
