"""Collect what `gputune show-kernel` shows: the sources and launches of a task's kernels in one configuration."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gputune.cache import TrialRecord
from gputune.client.context.persistent import left_out
from gputune.client.model.plan import Task
from gputune.client.options.tuning import TuningOptions
from gputune.client.report.problems import words
from gputune.client.tuning.search.cache_hit import Verdict
from gputune.client.tuning.search.rendered import rendered_sha256
from gputune.client.tuning.search.task_search import check_legal, default_of, space_of, task_key
from gputune.client.tuning.tuner import names_of
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import Launch, Needs, Stage
from gputune.core.resources import UNKNOWN, Resources, resources_in
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits, Instance
from gputune.kernels.space import Configuration
from gputune.runtime.backends.merging import built_alone

Chosen = Literal["tuned", "default"] | Configuration
"""Which configuration: the winner of the performance cache, else the default; the default; or values that are given."""


@dataclass(frozen=True)
class ShownKernel:
    """A task in one configuration. origin: where that comes from, in words; nodes: of the model, that run it;
    resources: what a device compiled the kernels of the main launch to, unknown where it was not measured."""

    task: Task
    nodes: Sequence[str]
    device: str
    configuration: Configuration
    origin: str
    instance: Instance
    resources: Sequence[Resources]

    @property
    def launches(self) -> list[tuple[str, Launch]]:
        """All launches, each with what it is for: those that pack weights, once, and the one of each inference."""
        return [*(("prepare", launch) for launch in self.instance.prepare), ("main", self.instance.main)]

    def kernels(self, purpose: str, launch: Launch) -> Iterator[tuple[Stage | Launch, str, Resources]]:
        """Yield the kernels of a launch, each with why it is never part of a persistent kernel, and what it takes. Both
        are known of the main launch only."""
        if purpose == "main":
            yield from zip(launch.sequence, left_out(launch), self.resources, strict=True)
        else:
            yield from ((kernel, "", UNKNOWN) for kernel in launch.sequence)


def shown_kernels(
    verdicts: Mapping[Task, Verdict],
    nodes_of: Mapping[Task, Sequence[str]],
    device: DeviceIdentity,
    limits: DeviceLimits,
    options: TuningOptions,
    chosen: Chosen,
    trials_of: Callable[[Task], Sequence[TrialRecord]],
) -> list[ShownKernel]:
    """Return those of the tasks that the options want. limits: of the device; trials_of: all trials of a task that the
    cache has. Raises ConfigError for a configuration that a task's space does not have, TuningError where the device
    has room for none."""
    found = []
    for task, verdict in verdicts.items():
        nodes = tuple(nodes_of.get(task, ()))
        if not options.wants(names_of(task, nodes)):
            continue
        family, default = family_of(task.op), default_of(task, limits)
        configuration, origin = _chosen(verdict, default, chosen)
        check_legal(configuration, space_of(task, limits), default, names_of(task)[0])
        instance = family.rendered(task.problem, configuration, limits)
        resources = _resources(configuration, instance, trials_of(task))
        found.append(ShownKernel(task, nodes, device.name, configuration, origin, instance, resources))
    return found


def _resources(
    configuration: Configuration, instance: Instance, trials: Sequence[TrialRecord]
) -> tuple[Resources, ...]:
    """Return what each kernel of the main launch took when these very launches were measured last."""
    kernels, sha256 = instance.main.sequence, rendered_sha256(instance)
    for trial in reversed(trials):
        if trial.configuration == configuration and trial.rendered_sha256 == sha256:
            known = resources_in(trial.measured)
            if len(known) == len(kernels):
                return known
    return (UNKNOWN,) * len(kernels)


def _chosen(verdict: Verdict, default: Configuration, chosen: Chosen) -> tuple[Configuration, str]:
    if chosen == "default":
        return default, "the default"
    if not isinstance(chosen, str):
        return chosen, "as given"
    if verdict.winner is None:
        return default, "the default: the performance cache has no winner for this device and driver"
    winner = verdict.winner
    return winner.configuration, f"tuned: {winner.median_ns / 1000:.1f} us, effort {winner.effort}"


def lines_of(kernels: Sequence[ShownKernel]) -> Iterator[str]:
    """OpenCL C for people: what it is and how it is launched as comments, then each source text once."""
    for kernel in kernels:
        yield f"// {names_of(kernel.task)[0]}: {words(kernel.task.op, task_key(kernel.task).problem)}"
        if kernel.nodes:
            yield f"// nodes: {', '.join(kernel.nodes)}"
        yield f"// configuration ({kernel.origin}): {_pairs(kernel.configuration)}"
        yield f"// device: {kernel.device}"
        for what, amounts in (("packed", kernel.instance.packed), ("scratch", kernel.instance.scratch)):
            if amounts:
                yield f"// {what} buffers, bytes: {_pairs(amounts)}"
        by_source: dict[str, list[tuple[str, Launch]]] = {}
        for purpose, launch in kernel.launches:
            by_source.setdefault(launch.source, []).append((purpose, launch))
        for source, launches in by_source.items():
            yield "//"
            for purpose, launch in launches:
                for stage, why, resources in kernel.kernels(purpose, launch):
                    yield f"// {purpose}: {_call(stage)}"
                    if stage.needs is not None:
                        yield from (f"//   {line}" for line in _in_words(stage.needs))
                    if any(resources.known.values()):
                        yield f"//   compiled to: {_compiled(resources)}"
                    if why:
                        yield f"//   never part of a persistent kernel: {why}"
                yield f"//   options: {launch.options or 'none'}"
                if reason := built_alone(launch):
                    yield f"//   built alone: {reason}"
            yield ""
            yield from source.rstrip().splitlines()
            yield ""


def fields_of(kernels: Sequence[ShownKernel]) -> list[dict[str, Any]]:
    """Return the same for tools."""
    return [
        {
            "task": (key := task_key(kernel.task)).digest,
            "op": kernel.task.op,
            "problem": key.problem,
            "nodes": list(kernel.nodes),
            "device": kernel.device,
            "origin": kernel.origin,
            "configuration": dict(kernel.configuration),
            "packed_bytes": dict(kernel.instance.packed),
            "scratch_bytes": dict(kernel.instance.scratch),
            "launches": [
                {
                    "purpose": purpose,
                    "options": launch.options,
                    "built_alone": built_alone(launch) or None,
                    "kernels": [
                        {
                            "entry": one.entry,
                            "global_size": list(one.global_size),
                            "local_size": list(one.local_size),
                            "arguments": list(one.arguments),
                            "writes": None if one.writes is None else list(one.writes),
                            "needs": None if one.needs is None else asdict(one.needs),
                            "resources": resources.known,
                            "left_out_of_persistent_kernels": why if purpose == "main" else None,
                        }
                        for one, why, resources in kernel.kernels(purpose, launch)
                    ],
                    "source": launch.source,
                }
                for purpose, launch in kernel.launches
            ],
        }
        for kernel in kernels
    ]


def _call(kernel: Launch | Stage) -> str:
    sizes = [" x ".join(map(str, size)) for size in (kernel.global_size, kernel.local_size)]
    arguments = ", ".join(map(str, kernel.arguments))
    return f"{kernel.entry}({arguments}), global size {sizes[0]}, local size {sizes[1]}"


def _in_words(needs: Needs) -> Iterator[str]:
    if needs.local_bytes:
        yield f"local memory of a work-group, bytes: {needs.local_bytes}"
    if needs.extensions or needs.features:
        yield f"needs of the device: {', '.join((*needs.extensions, *needs.features))}"


def _compiled(resources: Resources) -> str:
    """Return what a kernel takes, in words; what it does not use is left out, except spills next to registers."""
    known, named = resources.known, []
    if known.get("registers"):
        named.append(f"{known['registers']} registers")
    if known.get("spilled_bytes") or known.keys() >= {"registers", "spilled_bytes"}:
        named.append(f"{known['spilled_bytes']} bytes spilled")
    if known.get("private_bytes"):
        named.append(f"{known['private_bytes']} bytes of private memory")
    if known.get("local_bytes"):
        named.append(f"{known['local_bytes']} bytes of local memory")
    return ", ".join(named)


def _pairs(values: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())
