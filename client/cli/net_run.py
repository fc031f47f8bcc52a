"""Run contexts as `gputune net-run` asks for it."""

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gputune.client.cli.say import say
from gputune.client.context.verifying.distance import told
from gputune.client.context.verifying.origin import IN_WORDS, Origin
from gputune.client.device_errors import device_errors
from gputune.client.errors import ConfigError, DeviceOrContextError
from gputune.client.lists import comma_separated
from gputune.client.options.command_line import given_of
from gputune.client.options.config import check_graph_names
from gputune.client.options.config_file import read_file
from gputune.client.options.files import files_of_command
from gputune.client.options.power import asked_profile
from gputune.client.options.run import KEYS, RUN, RunOptions
from gputune.client.outputs import check_output, write_json, write_summary
from gputune.client.progress import Progress, reporting
from gputune.client.run import net_run
from gputune.client.run.contexts import Contexts
from gputune.client.run.inferences import Extent, Infer, Times, check_export, export_times, run
from gputune.client.run.models import open_models
from gputune.client.run.net_run import GraphRun, InPlace
from gputune.client.run.profiling import content_of, forms_in, level_of, lines_of, log_path, record
from gputune.client.run.steps import Steps, check_steps, has_several, has_steps
from gputune.client.run.validating import graph_names_of, validated
from gputune.client.target.connecting import AskedConnection, asked_connection, choose_target
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.target.transport.stream import is_local
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.runtime import Executor
from gputune.runtime.application.context import Context, load_all
from gputune.runtime.application.percentiles import in_words, inferences
from gputune.runtime.context.records import UNTUNED
from gputune.runtime.devices import load
from gputune.runtime.devices.discovery import AGENT_PREFIX
from gputune.runtime.loading.in_parts import ModelInParts
from gputune.runtime.loading.model import Model
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.profiling.levels import Level

log = logging.getLogger(__name__)


def run_contexts(values: Mapping[str, Any]) -> None:
    """Run what options ask for, given by their names, and write and tell what came out. Raises GputuneError."""
    asked = _asked(values)
    if asked.validate_binary:
        _validate(asked)
        return
    level = asked.level()
    named = click.get_current_context().get_parameter_source("output_dir") is not ParameterSource.DEFAULT
    profile_log = log_path(asked.output_dir if named else None)
    if level is not None:
        files_of_command().write(profile_log, "--profiling_level")
    check_output(asked.output_dir, folder=True)
    for file in (None if level is None else profile_log, asked.summary_json, asked.profile, asked.export_times):
        if file is not None:
            check_output(file)
    asked.check()
    models = open_models(asked.context_binary, asked.for_contexts(), level)
    with reporting(sys.stderr, asked.log_level) as progress, ExitStack() as stack:
        several, began = len(asked.context_binary) > 1, load.read()
        jobs, memory = _jobs(asked, stack, models) if several else ({"": _only_job(asked, stack, *models)}, None)
        _tell_results(jobs, asked.npy)
        times = {name: Times() for name in jobs}
        with _quiet(jobs, asked.wait_for_quiet, progress, began) as quiet:
            summaries = {name: _run(name, job, times[name], asked, progress) for name, job in jobs.items()}
        summaries = {name: summary | {"load": quiet.record.to_dict()} for name, summary in summaries.items()}
        if asked.verify is not None:
            origin = Origin.of(jobs[""].path, asked.verify)
            with device_errors(origin.context):
                verified = net_run.compared(jobs[""], origin)
            summaries[""]["verified"] = told(verified)
        if asked.summary_json is not None:
            write_summary(asked.summary_json, {"contexts": summaries, "group": memory} if several else summaries[""])
        if asked.export_times is not None:
            export_times(asked.export_times, times)
        if level is not None:
            profiles = _profiled(jobs, level, profile_log, asked.num_max_events, progress)
            if asked.profile is not None:
                write_json(asked.profile, {"contexts": profiles} if several or models[0].in_parts else profiles[""])
        if asked.verify is not None:
            said = net_run.verified(jobs[""], origin, verified)
            log.log(logging.INFO if origin.match == "same" else logging.WARNING, said)


def _tell_results(jobs: Mapping[str, GraphRun], npy: bool) -> None:
    """Tell the files of all results, which could lie where inputs do. Raises Overwrites."""
    files = files_of_command()
    for job in jobs.values():
        for path in net_run.result_files(job, npy):
            files.write(path, "--output_dir")


@dataclass(frozen=True)
class _Asked(RunOptions):
    """Hold what the command line and the config file ask for."""

    connection: AskedConnection = field(default_factory=AskedConnection)
    perf_profile: PerfProfile | None = None

    @property
    def remote(self) -> bool:
        return self.connection.target is not None or self.connection.adb is not None or self.on_agent

    @property
    def on_agent(self) -> bool:
        """Return whether the device is behind an agent, which a target server of our own reaches."""
        return self.device is not None and self.device.startswith(AGENT_PREFIX)

    def level(self) -> Level | None:
        """Return the level of the profile; None without a profile. Raises ConfigError."""
        return level_of(self.profiling_level, self.profiling_option, self.profile is not None)

    def check(self) -> None:
        """Raise ConfigError for options that do not go together."""
        if self.export_times is not None:
            check_export(self.export_times, "--export_times")
        if self.level() is not None and self.duration is not None:
            raise ConfigError("--duration: a profile records a number of inferences; give --num_inferences instead")
        if self.shared_buffer and self.remote:
            _refuse_distant(self.connection)
        if self.keep_warm and self.remote:
            raise ConfigError("--keep_warm is for a device of this machine, not for a target's; drop it")
        if not self.remote and self.connection.credentials.options:
            names = " and ".join(self.connection.credentials.options)
            raise ConfigError(f"{names}: only for a target; give --target, too")
        if self.verify is not None and len(self.context_binary) > 1:
            raise ConfigError(
                "--verify: a model is compared with one context, and there are several; run one at a time"
            )
        if len(self.context_binary) == 1:
            if self.share_spill_fill:
                raise ConfigError("--share_spill_fill: only several contexts can share arenas, and there is one")
        elif self.remote:
            raise ConfigError(
                f"--retrieve_context: a target runs one context, and there are {len(self.context_binary)}"
            )

    def check_time(self, number: int, elapsed_ns: int) -> None:
        """Raise DeviceOrContextError for an inference, counted from 0, that took longer than it may."""
        if self.timeout is not None and elapsed_ns > 1000 * self.timeout:
            raise DeviceOrContextError(
                f"timed out: inference {number} took {elapsed_ns / 1000:.0f} us, and --timeout allows {self.timeout}"
            )

    def for_contexts(self) -> dict[str, bool]:
        """Return whether each option is given that is only for contexts."""
        return {
            "--target": self.connection.target is not None,
            "--adb": self.connection.adb is not None,
            "--device agent:": self.on_agent,
            "--graph": self.graph is not None,
            "--shared_buffer": self.shared_buffer,
            "--keep_warm": self.keep_warm,
        }

    def lists(self, contexts: int) -> list[Path | None]:
        """Return the input list of each context. Raises ConfigError where there are more or fewer."""
        if self.input_list is None:
            return [None] * contexts
        if len(self.input_list) != contexts:
            raise ConfigError(
                f"--input_list: {len(self.input_list)} for {contexts} of --retrieve_context; give one for each "
                "context, separated by commas; it may be empty for a graph without inputs"
            )
        return self.input_list

    def graphs(self) -> list[str | None]:
        """Return the names of graphs that --graph gives, one for all contexts or one for each. Raises ConfigError."""
        try:
            return [None] if self.graph is None else [name or None for name in comma_separated(self.graph)]
        except ValueError as error:
            raise ConfigError(f"--graph: {error}") from None

    def job(
        self,
        name: str,
        path: Path,
        executor: net_run.AnyExecutor,
        input_list: Path | None,
        context: Context | None = None,
    ) -> GraphRun:
        """Return the inferences of a context; its name is empty where it is the only one. context: as of Steps. Raises
        ConfigError."""
        for text in executor.warnings:
            log.warning(f"{path}: {text}")
        if executor.choice is not None:
            log.info(f"{path}: {executor.choice}")
        infer: Infer = executor.run_timed
        steps = self._steps(executor, path, context) if has_steps(executor.graph, input_list) else None
        if steps is not None:
            infer = steps
        elif self.shared_buffer and isinstance(executor, Executor | RemoteExecutor):
            with device_errors(path):
                infer = InPlace(executor)
        whose = f"graph {executor.graph.name!r}" + (f" of context {name!r}" if name else "")
        lines = net_run.lines_of(input_list, executor, whose, steps)
        extent = Extent(self.num_inferences or len(lines), self.duration, self.warmup)
        kept = len(lines) if self.keep_num_outputs is None else min(self.keep_num_outputs, len(lines))
        return GraphRun(path, executor, infer, lines, extent, self.output_dir / name, kept)

    def _steps(self, executor: net_run.AnyExecutor, path: Path, context: Context | None) -> Steps:
        """Return what runs lines as steps of a state. Raises ConfigError."""
        given = {"--shared_buffer": self.shared_buffer, "--verify": self.verify is not None}
        check_steps([option for option, is_given in given.items() if is_given])
        assert isinstance(executor, Executor | RemoteExecutor)  # a model in parts has no states
        with device_errors(path):
            return Steps(executor, context, exact=self.remote or self.level() is not None)


def _asked(values: Mapping[str, Any]) -> _Asked:
    """Return what options ask for, and the config file where they say nothing. Raises ConfigError."""
    given = given_of(values)
    if "num_inferences" in given and "duration" in given:
        raise ConfigError("--duration and --num_inferences both say when a run ends; give one of them")
    fields = {one.of: values[one.name] for one in RUN}
    asked = _Asked(**fields, connection=asked_connection(given), perf_profile=asked_profile(given))
    if asked.config_file is None:
        return asked
    keys = dict(read_file(asked.config_file, KEYS).keys)
    mode = "cache_compatibility_mode"
    if click.get_current_context().get_parameter_source(mode) is not ParameterSource.DEFAULT:
        keys.pop(mode, None)
    asked = replace(asked, **keys)
    return replace(asked, graph=_graph(asked))


def _graph(asked: _Asked) -> str | None:
    """Return which graph runs: that of --graph, else the first that is enabled. Raises ConfigError."""
    if not asked.enable_graphs:
        return asked.graph
    if len(asked.context_binary) > 1:
        raise ConfigError("enable_graphs is for one context, and there are several; give --graph a name for each")
    check_graph_names("enable_graphs", asked.enable_graphs, graph_names_of(asked.context_binary[0]))
    if asked.graph is None:
        return asked.enable_graphs[0]
    for name in comma_separated(asked.graph):
        if name not in asked.enable_graphs:
            raise ConfigError(f"--graph: {name!r} is not among enable_graphs of the config file; add it there")
    return asked.graph


def _validate(asked: _Asked) -> None:
    """Say of each context that it is valid. Raises DeviceOrContextError for the first that is not."""
    if asked.connection.target is not None or asked.connection.adb is not None:
        raise ConfigError("--validate_binary is for this machine's own devices; omit --target and --adb")
    for path in asked.context_binary:
        say(f"{path}: {validated(path, asked.device, asked.cache_compatibility_mode == 'strict')}")


def _only_job(asked: _Asked, stack: ExitStack, model: Model) -> GraphRun:
    """Run the only context, which may be on a target, or a model in parts."""
    (input_list,) = asked.lists(1)
    if asked.remote:
        return asked.job("", model.path, _remote(asked, stack, model), input_list)
    with device_errors(model.path):
        several = asked.graph is None and asked.level() is None and has_several(model, input_list)
        context = load_all(model, asked.device, asked.cache_compatibility_mode) if several else None
    if context is not None:
        return asked.job("", model.path, _first_of(asked, stack.enter_context(context)), input_list, context)
    with device_errors(model.path):
        executor = model.load(asked.device, asked.cache_compatibility_mode, asked.graph, asked.perf_profile)
        stack.callback(executor.close)
        if isinstance(executor, ModelInParts):
            log.info(f"{model.path}: {executor.in_words}")
        else:
            executor.keep_warm(asked.keep_warm)
    return asked.job("", model.path, executor, input_list)


def _first_of(asked: _Asked, context: Context) -> Executor:
    """Return what runs the first graph of a context, all of whose graphs run as they are asked to."""
    if asked.perf_profile is not None:
        context.set_perf_profile(asked.perf_profile)
    for executor in context.executors.values():
        executor.keep_warm(asked.keep_warm)
    return context.executors[context.graphs[0]]


def _jobs(
    asked: _Asked, stack: ExitStack, models: Sequence[Model]
) -> tuple[dict[str, GraphRun], dict[str, Any] | None]:
    """Of several contexts, by name, and the memory of their group."""
    with device_errors():
        contexts = Contexts(models)
        input_lists = asked.lists(len(contexts.sources))
        loaded = contexts.load(
            stack, asked.graphs(), asked.share_spill_fill, asked.device, asked.cache_compatibility_mode
        )
        for member in loaded.executors.values():
            if asked.perf_profile is not None:
                member.set_perf_profile(asked.perf_profile)
            member.keep_warm(asked.keep_warm)
    jobs = {
        name: asked.job(name, loaded.paths[name], executor, input_list)
        for (name, executor), input_list in zip(loaded.executors.items(), input_lists, strict=True)
    }
    return jobs, loaded.memory()


def _refuse_distant(connection: AskedConnection) -> None:
    if connection.adb is not None or not is_local((connection.target or "").strip()):
        raise ConfigError(
            "--shared_buffer: a target over TCP does not share this machine's memory; omit it, or name a target on "
            "a local socket (--target unix:PATH)"
        )


def _remote(asked: _Asked, stack: ExitStack, model: Model) -> RemoteExecutor:
    """Load the context on the target of the command line; `stack` closes the connection and stops a server of our
    own."""
    target = stack.enter_context(
        choose_target(
            asked.connection.target,
            {} if asked.on_agent else os.environ,
            asked.device,
            credentials=asked.connection.credentials,
            adb=asked.connection.adb,
            notice=log.warning,
        )
    )
    for line in target.explanation:
        log.info(line)
    client = stack.enter_context(target.connect())
    if asked.perf_profile is not None and not client.set_perf_profile(asked.perf_profile):
        log.warning(f"nothing steers the clocks of the device of {client.address}; the perf profile changes nothing")
    with device_errors(model.path):
        return RemoteExecutor(client, model.path, asked.graph, asked.cache_compatibility_mode == "strict")


def _run(name: str, job: GraphRun, times: Times, asked: _Asked, progress: Progress) -> dict[str, Any]:
    """Run it, write its results, add its times and tell how it went. Returns what --summary_json says of it."""
    executor, loading, said = job.executor, len(job.executor.warnings), f"{name}: " if name else ""
    with device_errors(job.path), _shown(job, progress) as after:
        for one in run(job.infer, job.inputs, job.lines, job.extent, job.begin, job.axes):
            times.add(one.begin_ns, one.elapsed_ns)
            if one.number < job.keep_outputs:
                net_run.write_result(job.result_folder(one.number), one.outputs, asked.npy)
            asked.check_time(one.number, one.elapsed_ns)
            after()
    for text in [*executor.warnings[loading:], net_run.mostly_by_launches(executor)]:
        if text:
            log.warning(f"{said}{text}")
    summary = net_run.summarise(executor, times.elapsed_ns, job.extent.warmup)
    log.info(said + _in_short(executor, summary))
    return summary


@contextmanager
def _quiet(
    jobs: Mapping[str, GraphRun], minutes: int | None, progress: Progress, began: Mapping[str, object]
) -> Iterator[Quiet]:
    """Say before inferences that their device computes nothing, or that its machine is busy. Wait if that is asked for,
    and record what became of it. began: the state of this machine when the command began."""
    executors = [job.executor for job in jobs.values()]
    whole = any(executor.device.device_type == "cpu" for executor in executors)
    quiet = Quiet([load.read], progress, minutes, whole=whole, since=began)
    if not all(executor.computes for executor in executors):
        log.warning("the null device computes nothing: outputs are zeros, not results")
        quiet = Quiet([], progress)
    elif isinstance(remote := executors[0], RemoteExecutor):
        quiet = Quiet([remote.state], progress, minutes, whole=whole)
    quiet.settle()
    yield quiet
    quiet.end()


@contextmanager
def _shown(job: GraphRun, progress: Progress) -> Iterator[Callable[[], None]]:
    """Yield what to call after each inference: it counts them, or the seconds where these end the run."""
    what, seconds, begun_s = job.executor.graph.name, job.extent.seconds, time.monotonic()
    told = 0

    def after() -> None:
        nonlocal told
        done = told + 1 if seconds is None else int(time.monotonic() - begun_s)
        if done > told:
            progress.advance(done - told, what)
            told = done

    label, total = ("inference", job.extent.count) if seconds is None else ("second", math.ceil(seconds))
    with progress.running(label, total):
        yield after


def _profiled(
    jobs: dict[str, GraphRun], level: Level, path: Path, most_events: int, progress: Progress
) -> dict[str, dict[str, Any]]:
    """Report the profile of each job, or of each part of a model; also show it in short."""
    with device_errors():
        recorded = record(jobs, level, path, progress, most_events)
    if any(isinstance(job.executor, ModelInParts) for job in jobs.values()):
        names = [part.name for part in recorded.graphs]
    else:
        names = list(jobs)
    contents = {}
    for place in sorted({one.graph for one in recorded.inferences}):  # a branch that is not taken has none
        name = names[place]
        contents[name] = content_of(recorded, place)
        for line in lines_of(contents[name], forms_in(recorded, place)):
            log.info(f"{name}: {line}" if name else line)
    log.info(f"wrote the profile {path}; `gputune profile-viewer --input_log {path}` shows it")
    return contents


def _in_short(executor: net_run.AnyExecutor, summary: dict[str, Any]) -> str:
    times = [
        ("load", summary["load_ns"]),
        ("first", summary["first_inference_ns"]),
    ]
    if "median_round_trip_ns" in summary:
        times.append(("round trip", summary["median_round_trip_ns"]))
    count = len(summary["inference_ns"])
    said = [f"{name} {ns / 1e6:.2f} ms" for name, ns in times]
    said += [in_words(summary["percentiles_ns"], count)] if count > 1 else []  # the only one is the first
    untuned = f"; the context is {IN_WORDS[summary['tuning']]}" if summary["tuning"] in UNTUNED else ""
    return f"{inferences(count)} on {executor.device.name}: {', '.join(said)}{untuned}"
