"""Run one generation of a context binary: tune, choose by whole contexts, finalize, write, verify."""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from gputune.cache import PerformanceCache, named
from gputune.client.context import builder
from gputune.client.context.argument_form import DeviceChoices, FormChoice
from gputune.client.context.builder import Built, Wanted
from gputune.client.context.choice import Decision, InChain, outcomes_of
from gputune.client.context.comparison import GUESSED_LAUNCH_NS, INSIDE_NS, worth_compiling
from gputune.client.context.context_runner import ContextRunner
from gputune.client.context.kernel_repository import KernelRepository
from gputune.client.context.memory.load_choice import packed_or_smaller
from gputune.client.context.memory.weights import weight_bytes
from gputune.client.context.part_gains import worthwhile
from gputune.client.context.reserves import Foretelling, insure
from gputune.client.context.verifying.distance import Compared
from gputune.client.context.verifying.verification import GroundTruth, Verifier
from gputune.client.errors import ConfigError, OutputError, TargetError
from gputune.client.generation.cache_secret import secret_for
from gputune.client.generation.explaining import apart_line, outcome_line, summary_line, unfinished_line
from gputune.client.generation.memory_limit import Fitted, Measured, fit
from gputune.client.generation.phases import Clock
from gputune.client.generation.precision import mode_on
from gputune.client.generation.request import GenerationRequest, effective_configuration, no_frozen_cache
from gputune.client.generation.schematic import peaks_of, write_schematic_of
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.graphs import Graphs, tasks_of
from gputune.client.model.op_packages import OpPackage
from gputune.client.model.plan import Task
from gputune.client.outputs import writing
from gputune.client.progress import Progress
from gputune.client.report import write_report
from gputune.client.report.sizes import split_told
from gputune.client.target.client import TargetClient
from gputune.client.target.several import settings_of
from gputune.client.target.status import state_of
from gputune.client.tuning.budget import Budget
from gputune.client.tuning.measuring.end_to_end import EndToEnd
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.client.tuning.outcome import Outcome, by_key, of_tasks, untuned
from gputune.client.tuning.proven_features import proven_features
from gputune.client.tuning.search.cache_hit import Verdict, untuned_verdict
from gputune.client.tuning.search.task_search import device_limits, task_key
from gputune.client.tuning.tuner import Tuner
from gputune.client.viewer.schematic import RooflinePeaks
from gputune.core.errors import ContextError
from gputune.core.identity import DeviceIdentity
from gputune.core.quirks import groups_at_once, usual_form
from gputune.core.version import software_version
from gputune.core.whole_file import folders_to
from gputune.kernels.family import DeviceLimits
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context
from gputune.runtime.devices.discovery import SIMULATED

log = logging.getLogger(__name__)


class Generation:
    """One generation on connected targets, of which the first also packs weights and compiles."""

    def __init__(
        self,
        request: GenerationRequest,
        graphs: Graphs,
        packages: Sequence[OpPackage],
        ground_truth: GroundTruth | None,
        clients: Sequence[TargetClient],
        clock: Clock,
        progress: Progress,
        arrived: Callable[[], TargetClient | None] | None = None,
    ) -> None:
        """Raise ConfigError for what the device cannot do."""
        self._request, self.ep_context = request, request.ep_context
        self._graphs, self._packages = graphs, packages
        self._ground_truth = ground_truth
        self.clients = clients
        self._client = client = clients[0]
        self._maker: builder.Maker = client
        self._repository: KernelRepository | None = None
        self._clock, self._budget = clock, clock.budget
        self._lasts: bool | None = None  # whether the budget lasts for more than the untuned context, once known
        self._progress, self._arrived = progress, arrived
        self.device = DeviceIdentity.from_dict(client.device)
        self._form, self._launch_ns = request.config.form or usual_form(self.device), 0.0
        self.tier = self.device.tier
        if request.device_tier is not None:
            self.tier = named(self.tier, request.device_tier)
        self._computes = self.device.platform not in SIMULATED
        self._settings = {one.plan.name: request.config.settings_of(one.plan.name) for one in graphs.models}
        self._compares = self._computes and request.effort.contexts > 1
        self._features: frozenset[str] = frozenset()
        self._features = proven_features(clients, graphs.tasks(fused=True), self.limits)
        self._tasks = graphs.tasks(fused=self._compares)
        if request.effort.name == "none":
            self._tasks = tasks_of(graphs.untuned(self.limits))
        self._mode = request.tuning.cache_mode
        self.outcomes: list[Outcome] = []
        self.decisions: Sequence[Decision] = ()
        self._said = ""  # of weights, by the line about the context's bytes
        self.hurried = False  # whether a budget has kept something from being measured
        self.remembered: Mapping[str, EndToEnd] = {}  # by graph, what `explain` has found
        self.verified: Mapping[str, Mapping[str, Compared]] | None = None
        self.fitted: Fitted | None = None
        machines = [partial(state_of, one) for one in clients] if self._computes else ()  # others keep no model waiting
        is_cpu = self.device.device_type == "cpu"
        self.quiet = Quiet(machines, progress, request.tuning.wait_for_quiet, whole=is_cpu)
        self._precision = mode_on(self.device, request.config.precision, graphs.mode)
        plans = [model.plan for model in graphs.models]
        request.memory_types.check({one.name: [each.name for each in (*one.inputs, *one.outputs)] for one in plans})
        if ground_truth is not None and not self._computes:
            raise ConfigError(f"--verify: the device {self.device.name} computes nothing; choose another")

    @property
    def limits(self) -> DeviceLimits:
        """Return what the device allows and has proven, and how launches are given their arguments."""
        return device_limits(self.device, self._form, self._features, self._launch_ns)

    def run(self) -> None:
        """Run the whole generation. With tuning effort none no cache is read or written."""
        mode = self._mode
        with ExitStack() as stack:
            if self._request.effort.name == "none":
                log.info("tuning effort none: default configurations, no performance cache")
                self._open_repository(stack)
                outcomes = by_key(untuned(task, self.limits) for task in self._tasks)
                plans = self._graphs.untuned(self.limits)
                persistent = [self._persistent(one.name) and worth_compiling(one, self.device) for one in plans]
                made = [of_tasks(plan.tasks, outcomes) for plan in plans]
                worthwhile_ones = self._worthwhile(list(map(Decision, plans, made, persistent)))
                self._make(self._within_limit(worthwhile_ones, lambda task: ()))
                return
            path = self._cache_path(stack)
            kept = "" if mode == "use" else f", mode {mode}"
            log.info(f"performance cache {'none' if mode == 'off' else path}{kept}")
            opened = PerformanceCache.open_readonly if mode == "frozen" else PerformanceCache.open
            cache = stack.enter_context(opened(path, warn=log.warning, secret=self._secret))
            self._open_repository(stack, cache)
            if self._computes and self._request.config.form is None:
                self._form = FormChoice(self._choices(cache)).chosen(self._runner())
            self._launch_ns = FormChoice(self._choices(cache)).launch_ns
            tuner = self._tuner(cache)
            self._begin(tuner, cache)
            verdicts = tuner.verdicts(self._tasks).values()
            log.info(summary_line(verdicts))
            if not tuner.measures_nothing and any(verdict.measures for verdict in verdicts):
                with self._budget.paused():
                    self.quiet.settle()
                self._insure(tuner, cache)
            with self._clock.phase("tune"):
                outcomes = self._tune(tuner)
            with self._clock.phase("chain"):
                decided = self._decide(outcomes, tuner, cache)
            self.hurried = bool(line := unfinished_line([tuner.unfinished, *(one.unfinished for one in decided)]))
            if line and self._lasts is not False:
                log.warning(line)
            decisions = self._within_limit(self._worthwhile(decided), tuner.measured)
            self._make(decisions, cache)
            if mode != "frozen":
                cache.finish_generation(self._fingerprint)
            if (report := self._request.tuning.report) is not None:
                write_report(path, report, self._request.binary_file)
                log.info(f"wrote the report {report}")

    @property
    def cache_file(self) -> Path:
        """The performance cache of this device, which cache_mode off leaves alone."""
        return self._request.performance_cache_dir / self.tier.file_name

    @property
    def caches(self) -> list[Path]:
        """The files that winners or programs are taken from."""
        config = self._request.config
        used = self._request.keeps_measurements
        own = [self.cache_file] if used else []
        others = (config.system_performance_cache_dir if used else None, config.kernel_repo_path)
        return own + [folder / self.tier.file_name for folder in others if folder is not None]

    @cached_property
    def _secret(self) -> bytes | None:
        """The secret under which programs are kept. Raises CacheError."""
        alone = self._request.effort.name != "none" and self._request.config.kernel_repo_path is None
        return secret_for(self._mode if alone else "use")

    def _open_repository(self, stack: ExitStack, *caches: PerformanceCache) -> None:
        """Has programs come from the kernel repository, where there is any: the folder asked for, then these caches."""
        config = self._request.config
        if (folder := config.kernel_repo_path) is not None:
            path = folder / self.tier.file_name
            own = stack.enter_context(PerformanceCache.open(path, warn=log.warning, secret=self._secret))
            caches = (own, *caches)
        if not caches:
            return
        if config.invalidate_kernel_repo:
            caches[0].forget_programs()
        self._maker = self._repository = KernelRepository(self._client, caches, settings_of(self._client.server))

    @property
    def nodes_of(self) -> Mapping[Task, Sequence[str]]:
        """The names of the model's nodes that run a task."""
        return self._graphs.nodes_of

    def explain(self) -> dict[Task, Verdict]:
        """Return what `run` would do with each task, and why. Raises GputuneError, CacheError."""
        if self._request.effort.name == "none":
            return dict.fromkeys(self._tasks, untuned_verdict())
        with self.known() as (verdicts, _):
            return verdicts

    @contextmanager
    def known(self) -> Iterator[tuple[dict[Task, Verdict], Tuner]]:
        """Yield what `run` would do with each task, and who knows their trials. Nothing is measured and nothing is
        written: the generation is begun on a copy of the performance cache. Raises GputuneError, CacheError."""
        with ExitStack() as stack:
            opened = PerformanceCache.open_readonly if self._mode == "frozen" else PerformanceCache.open_copy
            cache = stack.enter_context(opened(self._cache_path(stack), warn=log.warning))
            choice = FormChoice(self._choices(cache))
            self._form, self._launch_ns = self._request.config.form or choice.remembered(), choice.launch_ns
            tuner = self._tuner(cache)
            self._begin(tuner, cache)
            if self._compares:
                found = {one.plan.name: self._chooser(one, tuner, cache).remembered for one in self._graphs.models}
                self.remembered = {name: told for name, told in found.items() if told is not None}
            yield tuner.verdicts(self._tasks), tuner

    def _cache_path(self, stack: ExitStack) -> Path:
        """Open the cache of measurements; with cache_mode off in a folder that goes when the stack is closed. Raises
        CacheMiss if the cache is frozen and is not there."""
        if self._mode == "off":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gputune-"))
            return Path(folder) / self.tier.file_name
        if self._mode == "frozen" and not self.cache_file.exists():
            raise no_frozen_cache(f"{self.cache_file} does not exist")
        return self.cache_file

    def _tuner(self, cache: PerformanceCache) -> Tuner:
        return Tuner(
            self.clients,
            cache,
            self._request.effort,
            self._progress,
            self._request.tuning,
            self._graphs.nodes_of,
            self._inference_ns if self._compares else None,
            self._arrived,
            load=self.quiet.record,
            limits=self.limits,
            budget=self._budget,
        )

    def _choices(self, cache: PerformanceCache) -> DeviceChoices:
        return DeviceChoices(cache, self.device, settings_of(self._client.server), self._mode == "frozen")

    def _runner(
        self, graph: str | None = None, progress: Progress | None = None, budget: Budget | None = None
    ) -> ContextRunner:
        """Return a runner that builds contexts of a graph as they ship. budget: None for no limit."""
        steps, shared = self._request.config.memory_search_steps, graph is None or self._settings[graph].shared_memory
        shown = progress or self._progress
        given = self._client, self._maker, self._write_to, shown, budget, self.quiet, self._form
        return ContextRunner(*given, memory_search_steps=steps, shared_memory=shared)

    def _insure(self, tuner: Tuner, cache: PerformanceCache) -> None:
        """Make the untuned contexts before anything is measured, where a budget limits that; does so once."""
        if not (self._budget.limited and self._compares) or self._lasts is not None or self._repository is None:
            return
        config, shown = self._request.config, Foretelling(self._progress, self._budget)
        graphs = [(self._chooser(one, tuner, cache), self._runner(one.plan.name, shown)) for one in self._graphs.models]
        anew = len(graphs) > 1 or bool(config.memory_limit_hint) or config.compact
        verifies = self._ground_truth is not None
        with self._clock.phase("untuned"):
            self._lasts = insure(self._budget, graphs, self._repository, anew=anew, verifies=verifies)

    def _inference_ns(self, time_ns: Callable[[Task], float]) -> float:
        """Return what an inference is expected to take by the times of its tasks, before any context was timed."""
        launch_ns = {True: INSIDE_NS, False: GUESSED_LAUNCH_NS}
        return self._graphs.inference_ns(time_ns, lambda graph: launch_ns[self._persistent(graph)])

    def _persistent(self, graph: str) -> bool:
        """Return whether persistent kernels are an alternative for a graph. Their parts take no offsets."""
        possible = groups_at_once(self.device) > 0 and self._form != "offsets"
        return possible and self._settings[graph].persistent_kernels

    def _begin(self, tuner: Tuner, cache: PerformanceCache) -> None:
        """Do what comes before the verdicts: checks, the mark of this generation, what the system's cache knows."""
        tuner.check(self._tasks)
        if self._mode != "frozen":
            begun = cache.begin_generation(self._fingerprint, self._request.config.invalidate_performance_cache)
            if self._mode == "refresh":
                cache.seen_since = begun.begun_at
            if begun.invalidated:
                log.info("performance cache invalidated: starting from nothing")
            elif begun.resumed:
                log.info("resuming an interrupted generation: what it measured is not measured again")
        if self._mode == "use":
            self._borrow(tuner)

    def _borrow(self, tuner: Tuner) -> None:
        """Take in what the system's cache knows and the user's does not. Raises CacheError."""
        if (folder := self._request.config.system_performance_cache_dir) is None:
            return
        path = folder / self.tier.file_name
        if not path.exists():
            log.info(f"system performance cache {path}: the file for this device does not exist")
            return
        with PerformanceCache.open_readonly(path, warn=log.warning) as system:
            taken = tuner.borrow(self._tasks, system)
        log.info(f"system performance cache {path}: {taken} tasks taken from it")

    def _worthwhile(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """Return the decisions, without parts of models that onnxruntime is faster at, where that can be measured."""
        if (written := self.ep_context) is None or not written.cuts or not self._computes:
            return decisions
        runner, measures = partial(self._runner, budget=self._budget), self._compares and self._mode != "frozen"
        with self._clock.phase("chain"):
            cuts, kept = worthwhile(written.cuts, decisions, self._client, runner, measures)
        self.ep_context = replace(written, cuts=cuts)
        return kept

    def _within_limit(self, decisions: Sequence[Decision], measured: Measured) -> Sequence[Decision]:
        """Return the decisions, changed as far as a limit of memory needs it, where there is one."""
        config = self._request.config
        if not config.memory_limit_hint:
            return decisions
        with self._clock.phase("finalize"):
            limit, steps = config.memory_limit_hint, config.memory_search_steps
            self.fitted = fit(decisions, limit, measured, self.device, self._form, steps)
        log.log(logging.INFO if self.fitted.met else logging.WARNING, self.fitted.line)
        return self.fitted.decisions

    def _make(self, decisions: Sequence[Decision], cache: PerformanceCache | None = None) -> None:
        """Finalize, write and verify what was decided."""
        self.outcomes = outcomes_of(decisions)
        self.decisions = decisions
        with self._clock.phase("finalize"):
            shared = [self._settings[one.plan.name].shared_memory for one in decisions]
            wanted = [
                Wanted(one.plan, one.outcomes, one.persistent, own, self._form)
                for one, own in zip(decisions, shared, strict=True)
            ]
            try:
                built = self._built(wanted, cache)
            except TargetError as error:
                persistent = any(one.persistent for one in wanted)
                if self._repository is not None and not persistent:
                    raise
                built = self._built([replace(one, persistent=False) for one in wanted], cache, plain=True)
                log.warning(apart_line(error, built) if persistent else f"launches do not share programs: {error}")
        if self._repository is not None and (foreign := len(self._repository.foreign)):
            log.info(
                f"{foreign} compiled programs in the cache are from another installation with another secret: they "
                "were compiled again"
            )
        if self._request.effort.name != "none":
            log.info(self._clock.line)
        peaks = self._peaks(cache)
        with self._clock.phase("write"):
            self._write(built)
            if self._request.profiling is not None:
                what = self.decisions, self._graphs.models, built, peaks, self.limits
                write_schematic_of(self._request, self.tier.name, self.device, *what)
        with self._clock.phase("verify"):
            self._verify(decisions)
        for one in decisions:
            if one.end_to_end is not None:
                log.info(f"graph {one.plan.name}: " * (len(decisions) > 1) + one.end_to_end.line)

    def _built(self, wanted: Sequence[Wanted], cache: PerformanceCache | None, plain: bool = False) -> Built:
        """Return the graphs with their programs, which launches do not share if they are to be plain."""
        repository, config, progress = self._repository, self._request.config, self._progress
        maker, sharing = repository or self._client, config.sharing(plain, kept=repository is not None)
        make = partial(builder.build_all, wanted, maker, progress, config.memory_search_steps, sharing)
        if repository is not None:
            repository.counts.clear()
        built = make(compact=config.compact)
        if config.weights == "auto" and self._compares and cache is not None:
            runner, choices = self._runner(budget=self._budget), self._choices(cache)
            built, self._said = packed_or_smaller(runner, built, make, wanted, choices)
        if repository is not None and (counts := repository.counts).total():
            log.info(f"kernel repository: {counts['found']} programs found, {counts['compiled']} compiled")
        return built

    def _verify(self, decisions: Sequence[Decision]) -> None:
        """Compare each graph with onnxruntime, where that is asked for. Raises VerificationError."""
        if self._ground_truth is None:
            return
        self.verified = {}
        for decision in decisions:
            name = decision.plan.name
            verifier = Verifier(self._ground_truth.oracles[name], self._client, self._ground_truth.decoders.get(name))
            found = verifier.verify(self._request.binary_file, decision, self._ground_truth.inputs[name])
            self.verified = {**self.verified, name: found}

    @cached_property
    def _fingerprint(self) -> str:
        return self._request.fingerprint(self.tier.name, self._packages)

    def _tune(self, tuner: Tuner) -> dict[str, Outcome]:
        number = itertools.count(1)

        def done(outcome: Outcome) -> None:
            log.info(f"[{next(number)}/{len(self._tasks)}] {outcome_line(outcome)}")

        with self._progress.running("tuning", tuner.expected_trials(self._tasks), self._budget.limit("tuning")):
            return by_key(tuner.tune(self._tasks, done, self._graphs.optional))

    def _decide(self, outcomes: dict[str, Outcome], tuner: Tuner, cache: PerformanceCache) -> list[Decision]:
        """For each graph which plan and which of the finalists: those that are fastest in the whole graph, where that
        can be known."""
        if not self._compares:
            return [Decision(model.plan, of_tasks(model.plan.tasks, outcomes)) for model in self._graphs.models]
        decisions = []
        for place, model in enumerate(self._graphs.models):
            chooser, own = self._chooser(model, tuner, cache), of_tasks(model.tasks, outcomes)
            if (decision := chooser.known(own)) is None:
                self._insure(tuner, cache)
                self._budget.divide(len(self._graphs.models) - place)
                decision = chooser.decide(own, self._runner(model.plan.name, None, self._budget))
            decisions.append(decision)
        return decisions

    def _chooser(self, model: Alternatives, tuner: Tuner, cache: PerformanceCache) -> InChain:
        asked, persistent = self._request, self._persistent(model.plan.name)
        return InChain(model, tuner, cache, asked.effort, asked.tuning, self.limits, persistent)

    def _write_to(self, built: builder.Built, path: Path) -> int:
        return write_context(path, self._context(built))

    @property
    def _configuration(self) -> dict[str, Any]:
        return effective_configuration(self._request, [model.plan for model in self._graphs.models]) | {
            "precision_mode": self._precision,
            "op_packages": [package.title for package in self._packages],
            "tuned_tasks": [task_key(task).digest for task in self._tasks],
            "end_to_end": {
                one.plan.name: {**one.end_to_end.to_dict(), "contexts": [dict(context) for context in one.compared]}
                for one in self.decisions
                if one.end_to_end is not None
            },
        }

    def _context(self, built: builder.Built) -> Context:
        return Context(
            graphs=built.graphs,
            programs=built.programs,
            weights=built.weights,
            packing=built.packing,
            models=self._graphs.origins,
            device=self._client.device,
            tier=self.tier.name,
            configuration=self._configuration,
            versions={
                "gputune": software_version(),
                "platform": self.device.platform_version,
                "driver": self.device.driver_version,
            },
            computes=self._computes,
        )

    def _write(self, built: builder.Built) -> None:
        path, types = self._request.binary_file, self._request.memory_types
        built = replace(built, graphs=tuple(map(types.applied, built.graphs)))
        if not built.graphs:
            log.warning(f"{path} is not written, because no part runs on the device")
            self._write_ep_context(path)
            return
        with writing(path), folders_to(path.parent):
            try:
                size = self._write_to(built, path)
            except ContextError as error:
                raise OutputError(f"{path} cannot be written: {error}") from error
        if not self._request.temporary:
            log.info(f"wrote {path} ({size} bytes)")
            log.info(split_told(path, weight_bytes(one.plan for one in self.decisions), self._said))
        self._write_ep_context(path)

    def _write_ep_context(self, binary_file: Path) -> None:
        """Write the ONNX files that stand for a context binary, if they are asked for."""
        files = self.ep_context.write(binary_file) if self.ep_context is not None else {}
        for written, size in files.items():
            if not self._request.temporary:
                log.info(f"wrote {written} ({size} bytes)")

    def _peaks(self, cache: PerformanceCache | None) -> RooflinePeaks | None:
        """Return the best rates measured on the device, for a schematic."""
        if self._request.profiling is None or not self._computes:
            return None
        with self._clock.phase("peaks"):
            return peaks_of(self.decisions, self._client, cache, self._mode == "frozen")
