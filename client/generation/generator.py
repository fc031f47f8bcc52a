"""Run the context binary generator: check first, then import, lower, tune, finalize and write."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gputune.cache import cache_files, check_writable, named, tier_of
from gputune.client.context.verifying.exactness import lines_of
from gputune.client.context.verifying.origin import records_of
from gputune.client.context.verifying.verification import GroundTruth, ground_truth_for, ground_truth_of_parts
from gputune.client.errors import STATE, ConfigError, TargetError
from gputune.client.generation.cache_secret import known_secret
from gputune.client.generation.generation import Generation
from gputune.client.generation.kernels import Chosen, ShownKernel, shown_kernels
from gputune.client.generation.phases import Clock, PhaseLog, TimedProgress
from gputune.client.generation.precision import in_precision
from gputune.client.generation.request import GenerationRequest, no_frozen_cache, tell_cache, tell_files
from gputune.client.generation.summary import check_gain, summarise
from gputune.client.model.chosen_outputs import OPTION as OUTPUTS
from gputune.client.model.chosen_outputs import ChosenOutputs
from gputune.client.model.graph import Graph
from gputune.client.model.graphs import Graphs, cut_graphs, read_graphs
from gputune.client.model.op_packages import OpPackage, in_use, load_packages
from gputune.client.model.parts import Cut, told
from gputune.client.model.plan import Task
from gputune.client.model.state import Decoder
from gputune.client.options.config import HOST, Config
from gputune.client.options.tuning import check_compare_again
from gputune.client.outputs import Files, check_output, write_summary
from gputune.client.progress import SILENT, Progress, gathered_warnings
from gputune.client.target.client import TargetClient
from gputune.client.target.several import Targets, TargetSource, choose_targets, settings_of
from gputune.client.tuning.budget import Budget
from gputune.client.tuning.measuring.end_to_end import EndToEnd
from gputune.client.tuning.search.cache_hit import Verdict
from gputune.client.tuning.tuner import names_of
from gputune.core.precision import IN_FLOATS
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.protocol.limits import Limits

log = logging.getLogger(__name__)

__all__ = ["Explained", "GenerationRequest", "explain", "generate", "show_kernels"]


def generate(
    request: GenerationRequest,
    environment: Mapping[str, str],
    progress: Progress = SILENT,
    source: TargetSource | None = None,
    files: Files | None = None,
    begun: float | None = None,
) -> dict[str, Any]:
    """Generate a context binary and return the summary. Raises GputuneError, CacheError; GainTooSmall after all is
    written.

    source: where sessions come from, which stays the caller's; by default the targets that the request names. files:
    what the caller has read to make the request; begun: since when a budget counts, by time.monotonic, by default from
    now on. Nothing is written, and nothing in a cache is invalidated, before
    every check has passed.
    """
    clock, files = Clock(Budget(request.tuning.budget_seconds, begun=begun)), files or Files()
    with gathered_warnings() as warnings:
        with clock.phase("init"), clock.phase("check"):
            tell_files(request, files)
            _check_outputs(request)
        with ExitStack() as stack:
            phases = None if request.profiling is None else stack.enter_context(PhaseLog(request.profiling, clock))
            with _prepared(request, environment, TimedProgress(progress, clock), clock, source) as generation:
                for cache in generation.caches:
                    tell_cache(cache, files, "--performance_cache_dir")
                if phases is not None:
                    phases.begin(generation.clients[0].device, settings_of(generation.clients[0].server))
                generation.run()
                generation.quiet.end()
                told = [one.end_to_end for one in generation.decisions if one.end_to_end is not None]
                if advice := generation.quiet.record.advice(bool(told) and all(one.open for one in told)):
                    log.warning(advice)
    summary = summarise(request, generation, clock.seconds, warnings)
    if request.summary_json is not None:
        write_summary(request.summary_json, summary)
    check_gain(request, generation.decisions, generation.device)
    return summary


@dataclass(frozen=True)
class Explained:
    """What a generation would do: its performance cache file, for each task the verdict and the model's nodes, and by
    graph the last choice between whole contexts."""

    file: Path
    verdicts: Mapping[Task, Verdict]
    nodes_of: Mapping[Task, Sequence[str]]
    choices: Mapping[str, EndToEnd]


def explain(request: GenerationRequest, environment: Mapping[str, str]) -> Explained:
    """Return what the generation of this request would do with each task, and why; nothing is measured and nothing is
    written. Raises GputuneError, CacheError."""
    check_bound(request)
    with _prepared(request, environment, SILENT, Clock()) as generation:
        verdicts = generation.explain()
        return Explained(generation.cache_file, verdicts, generation.nodes_of, generation.remembered)


def show_kernels(
    request: GenerationRequest, environment: Mapping[str, str], configuration: Chosen
) -> list[ShownKernel]:
    """Return the kernels of the tasks of a model that the request asks to be tuned, in a configuration; nothing is
    measured and nothing is written. Raises GputuneError, CacheError."""
    check_bound(request)
    with _prepared(request, environment, SILENT, Clock()) as generation, generation.known() as (verdicts, tuner):
        device, limits = generation.device, generation.limits
        return shown_kernels(verdicts, generation.nodes_of, device, limits, request.tuning, configuration, tuner.trials)


@contextmanager
def _prepared(
    request: GenerationRequest,
    environment: Mapping[str, str],
    progress: Progress,
    clock: Clock,
    source: TargetSource | None = None,
) -> Iterator[Generation]:
    """Yield a generation whose model is read and whose targets are connected; op packages are in use meanwhile."""
    with clock.phase("init"), clock.phase("check"):
        packages = load_packages(request.op_packages)
    with in_use(packages), ExitStack() as stack:
        try:
            read = _read(request, packages, clock)
            chosen = source or stack.enter_context(_chosen(request, environment, clock))
            yield _connected(request, packages, read, chosen, progress, clock)
        finally:
            with clock.phase("deinit"):
                stack.close()


@dataclass(frozen=True)
class _Read:
    """Hold all that is known before the target. cuts: the models in parts, if nodes of them stay in onnxruntime."""

    graphs: Graphs
    ground_truth: GroundTruth | None
    cuts: Sequence[Cut]


def _read(request: GenerationRequest, packages: Sequence[OpPackage], clock: Clock) -> _Read:
    """Return the model, and what it will be verified with."""
    precision, decoders = request.config.precision, dict[str, Decoder]()
    with clock.phase("import"):
        if request.config.unsupported == HOST:
            cut_models = _cuts(request)
            read = in_precision(precision, (part.graph for cut in cut_models for part in cut.parts))
            left = iter(read)
            cuts = [cut.changed(lambda graph: next(left)) for cut in cut_models]
            paths = [cut.imported.path for cut in cuts for _ in cut.parts]
        else:
            whole = read_graphs(request.models, precision.narrow, decoders)
            enabled, paths = _enabled(request.config, whole, request.paths_of_graphs)
            read, cuts = in_precision(precision, _with_outputs(enabled, request.outputs)), []
    with clock.phase("lower"):
        unfused = [one.name for one in read if not request.config.settings_of(one.name).fusion]
        graphs = Graphs(read, unfused, records_of(zip([one.name for one in read], paths, strict=True)))
        tasks = graphs.tasks(fused=True)
    with clock.phase("init"), clock.phase("check"):
        request.tuning.check_bound([names_of(task, graphs.nodes_of.get(task, ())) for task in tasks])
        ground_truth = None
        if request.verify:
            plans = [model.plan for model in graphs.models]
            if cuts:
                ground_truth = ground_truth_of_parts(cuts, request.input_list)
            else:
                ground_truth = ground_truth_for(paths, request.input_list, plans, decoders)
    for package in packages:
        log.info(f"op package {package.title}: {_listing(package)}")
    for path, model in zip(paths, graphs.models, strict=True):
        title = path.name if len(graphs.models) == 1 else f"{path.name}, graph {model.plan.name}"
        found = f"{len(model.plan.operations)} operations, {len(model.plan.tasks)} tasks"
        log.info(f"model {title}: {found}, {len(model.groups)} groups that may be fused")
        for line in () if model.plan.exactness is None else lines_of(model.plan.exactness.told(())):
            log.info(f"model {title}: {line}")
    if len(set(paths)) < len(paths) and not cuts:
        log.info(f"{len(paths)} graphs in one context: a model has several shapes or capacities")
    return _Read(graphs, ground_truth, cuts)


def _cuts(request: GenerationRequest) -> list[Cut]:
    """Return the models in parts. Raises ConfigError for options that have no meaning then."""
    config = request.config
    wishes = {
        "--enable_intermediate_outputs": request.outputs.every,
        f"--{OUTPUTS}": bool(request.outputs.named),
        "enable_graphs": bool(config.enable_graphs),
        "--io_type": bool(config.precision.io_types),
    }
    if config.state:
        raise ConfigError(f"{STATE}: with --unsupported host onnxruntime runs the model, and keeps no state; drop one")
    for name in (name for name, wished in wishes.items() if wished):
        raise ConfigError(f"{name} has no meaning with --unsupported host, which needs all parts as they are; drop one")
    cuts = cut_graphs(request.models, config.precision.narrow)
    for cut in cuts:
        log.log(logging.INFO if cut.parts else logging.WARNING, told(cut))
    config.check_graphs([part.graph.name for cut in cuts for part in cut.parts])
    return cuts


def _chosen(request: GenerationRequest, environment: Mapping[str, str], clock: Clock) -> Targets:
    with clock.phase("init"), clock.phase("connect"):
        return choose_targets(
            request.target,
            environment,
            request.device,
            log_level=request.log_level,
            credentials=request.credentials,
            adb=request.adb,
            notice=log.warning,
        )


def _connected(
    request: GenerationRequest,
    packages: Sequence[OpPackage],
    read: _Read,
    chosen: TargetSource,
    progress: Progress,
    clock: Clock,
) -> Generation:
    """Return a generation on the sessions of a source."""
    for line in chosen.explanation:
        log.info(line)
    with clock.phase("init"), clock.phase("connect"):
        clients = chosen.connect_all()
        if request.perf_profile is not None:
            _set_perf_profile(clients, request.perf_profile)
        if request.verify or request.effort.name != "none":
            _check_contexts(clients[0])
        if request.verify or request.effort.contexts > 1:
            _check_return(read.graphs, clients[0].limits)
    if request.ep_context is not None:
        request = replace(request, ep_context=replace(request.ep_context, cuts=read.cuts))
    return Generation(
        request,
        read.graphs,
        packages,
        read.ground_truth,
        clients,
        clock=clock,
        progress=progress,
        arrived=chosen.arrived,
    )


def _set_perf_profile(clients: Sequence[TargetClient], profile: PerfProfile) -> None:
    """Has all targets ask for clocks by a profile, and says of each what steers it."""
    for client in clients:
        controls = client.set_perf_profile(profile)
        if not profile.silent:
            steered = f"on {', '.join(controls)}" if controls else "changes nothing, as no clocks can be steered"
            log.info(f"perf profile {profile.name} {steered}: {client.address}")


def _enabled(config: Config, graphs: Sequence[Graph], paths: Sequence[Path]) -> tuple[list[Graph], list[Path]]:
    """Return those of the graphs that the config file does not leave out, and the model of each. Raises ConfigError for
    a name in it that no graph has."""
    config.check_graphs([graph.name for graph in graphs])
    chosen = config.enable_graphs or [graph.name for graph in graphs]
    found = [(graph, path) for graph, path in zip(graphs, paths, strict=True) if graph.name in chosen]
    return [graph for graph, _ in found], [path for _, path in found]


def _with_outputs(graphs: Sequence[Graph], outputs: ChosenOutputs) -> Sequence[Graph]:
    """Return the graphs with these tensors as outputs, too, and told what that costs."""
    chosen = outputs.of(graphs)
    for before, graph in zip(graphs, chosen, strict=True):
        if added := graph.outputs[len(before.outputs) :]:
            nbytes = sum(graph.tensors[name].nbytes for name in added)
            log.info(
                f"graph {graph.name!r}: outputs in addition to the model's own: {len(added)}, which take "
                f"{nbytes / (1 << 20):.1f} MiB while the context is loaded"
            )
    return chosen


def _check_contexts(client: TargetClient) -> None:
    """Raise TargetError if a target runs no contexts: what is tuned is compared as a whole before it is written."""
    if why := client.why_no_contexts:
        raise TargetError(
            "no_contexts",
            f"{client.address} runs no contexts, which tuning and --verify need: {why}; or use --tuning_effort none "
            "without --verify",
        )


def _check_return(graphs: Graphs, limits: Limits) -> None:
    """Check that the outputs of each graph can come back from the target in one inference, as comparing contexts and
    verifying need. Raises ConfigError."""
    most_bytes = limits.frame_bytes - limits.header_bytes
    for plan in (model.plan for model in graphs.models):
        nbytes, count = sum(tensor.nbytes for tensor in plan.outputs), len(plan.outputs)
        if nbytes > most_bytes or count > limits.blobs:
            raise ConfigError(
                f"graph {plan.name!r} has {count} outputs of {nbytes >> 20} MiB, but a target returns at most "
                f"{limits.blobs} of {most_bytes >> 20} MiB; comparing contexts and --verify need all: name fewer "
                "outputs with --set_output_tensors, or use --tuning_effort none without --verify"
            )


def check_bound(request: GenerationRequest) -> None:
    """Raise ConfigError for wishes about caches that this generation could only ignore, and for a tier that cannot
    be; CacheMiss if the cache is frozen and its folder has none."""
    if request.device_tier is not None:
        check_tier(request.device_tier)
    config, mode = request.config, request.tuning.cache_mode
    wishes = {
        "invalidate_performance_cache": config.invalidate_performance_cache and mode in ("off", "frozen"),
        "system_performance_cache_dir": config.system_performance_cache_dir is not None and mode != "use",
    }
    for key in (key for key, ignored in wishes.items() if ignored):
        raise ConfigError(f"{key} has no meaning with cache_mode {mode!r}; drop one of them")
    check_compare_again(request.tuning)
    if request.verify and config.precision.quantised == IN_FLOATS:
        raise ConfigError(
            f"--verify compares with a model that rounds, and --quantised {IN_FLOATS} does not; drop one of them"
        )
    if request.effort.name != "none" and mode == "frozen" and not cache_files(request.performance_cache_dir):
        raise no_frozen_cache(f"there is none in {request.performance_cache_dir}")
    unused = request.effort.name == "none" or mode in ("off", "frozen")
    if config.invalidate_kernel_repo and config.kernel_repo_path is None and unused:
        raise ConfigError("invalidate_kernel_repo: no kernel repository is kept here; name one with kernel_repo_path")


def check_tier(name: str) -> None:
    """Raise ConfigError for what cannot be a tier's name."""
    try:
        named(tier_of("", 0), name)
    except ValueError as error:
        raise ConfigError(f"--device_tier: {error}") from None


def _listing(package: OpPackage) -> str:
    return ", ".join([*(f"kernels of {op}" for op in package.families), *package.lowerings])


def _check_outputs(request: GenerationRequest) -> None:
    """Check that all results can be written, before anything takes time."""
    check_bound(request)
    profiled = () if request.profiling is None else (request.schematic_file, request.profiling.log_file)
    for path in filter(None, (request.binary_file, request.summary_json, request.tuning.report, *profiled)):
        check_output(path)
    if request.ep_context is not None:
        request.ep_context.check(request.binary_file)
    if request.effort.name != "none" and request.tuning.cache_mode not in ("off", "frozen"):
        check_writable(request.performance_cache_dir)
    if request.config.kernel_repo_path is not None:
        check_writable(request.config.kernel_repo_path)
    uses_cache = request.effort.name != "none" and request.tuning.cache_mode != "off"
    if uses_cache or request.config.kernel_repo_path is not None:
        known_secret()  # raises for one that is refused
