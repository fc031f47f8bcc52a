"""Write the graphs of a profile, operation by operation, as NAME_htp.json holds them.

The values are plain JSON. Operations, tensors and edges name each other. Places are in the order in which operations
run; -1 stands for what the application has before, and the number of operations for what it keeps after. Times are ns.
Without a schematic, a graph has only its operations and launches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gputune.client.viewer.profile import GraphProfile, OperationTimes, Profile
from gputune.client.viewer.schematic import GraphPlan, TensorPlan
from gputune.runtime.profiling.records import LoggedLaunch

KIND = "gputune-topology"
VERSION = 1
Map = dict[str, Any]
_NAMES = {"default": "default_configuration", "nodes": "onnx_nodes", "nbytes": "bytes"}


def topology_of(profile: Profile) -> Map:
    """Return all graphs of a profile."""
    schematic = profile.schematic
    return {
        "kind": KIND,
        "version": VERSION,
        "model": schematic and schematic.model,
        "model_sha256": schematic and schematic.model_sha256,
        "context": schematic and schematic.context,
        "graphs": [_graph(graph) for graph in profile.graphs],
    }


def _graph(graph: GraphProfile) -> Map:
    logged, plan = graph.graph, graph.plan
    return {
        "name": logged.name,
        "digest": logged.digest,
        "inputs": list(logged.inputs),
        "outputs": list(logged.outputs),
        "inferences": len(graph.inferences),
        "operations": _operations(graph, plan),
        "edges": [_edge(plan, *edge) for edge in plan.edges()] if plan else [],
        "tensors": [_tensor(one, plan) for one in plan.tensors] if plan else [],
        "onnx_nodes": dict(plan.nodes) if plan else {},
        "arena_bytes": list(logged.arena_bytes),
        "arena_bound_bytes": plan and plan.arena_bound_bytes,
    }


def _operations(graph: GraphProfile, plan: GraphPlan | None) -> list[Map]:
    """In the order of the schematic, those without launches included; without one in the order of the log."""
    times = {one.name: one for one in graph.operations}
    if plan is None:
        return [{"name": one.name, "task": one.task, **_ran(graph, one)} for one in times.values()]
    return [{**_told(one, "launches"), **_ran(graph, times.get(one.name))} for one in plan.operations]


def _told(record: Any, *left_out: str) -> Map:
    """Return the fields of a record of the schematic, by the names that they have here."""
    fields = {_NAMES.get(name, name): value for name, value in vars(record).items() if name not in left_out}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def _ran(graph: GraphProfile, times: OperationTimes | None) -> Map:
    """Return what became of an operation: its launches and their times."""
    if times is None:
        return {"total_ns": 0, "median_ns": 0.0, "launches": []}
    launches = [_launch(place, graph.graph.launches[place], graph) for place in times.launches]
    return {"total_ns": times.total_ns, "median_ns": times.median_ns, "launches": launches}


def _launch(place: int, launch: LoggedLaunch, graph: GraphProfile) -> Map:
    return {
        "place": place,
        "entry": launch.entry,
        "global_size": list(launch.global_size),
        "local_size": list(launch.local_size),
        "median_ns": float(np.median(graph.launches_ns[:, place])) if graph.timed else 0.0,
    }


def _edge(plan: GraphPlan, before: int, behind: int, tensor: str) -> Map:
    return {"from": plan.operations[before].name, "to": plan.operations[behind].name, "tensor": tensor}


def _tensor(one: TensorPlan, plan: GraphPlan) -> Map:
    in_arena = one.kind == "arena"
    lies = {"arena": one.arena if in_arena else None, "offset_bytes": one.offset if in_arena else None}
    return {**_told(one, "arena", "offset"), **lies, "memory_of": plan.aliases.get(one.name)}
