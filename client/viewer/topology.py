"""Write the graphs of a profile, operation by operation, as NAME_htp.json holds them.

The values are plain JSON. Operations, tensors and edges name each other. Places are in the order in which operations
run; -1 stands for what the application has before, and the number of operations for what it keeps after. Times are ns.
Without a schematic, a graph has only its operations and launches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gputune.client.viewer.profile import GraphProfile, OperationTimes, Profile
from gputune.client.viewer.schematic import GraphPlan, OperationPlan, TensorPlan
from gputune.runtime.profiling.records import LoggedLaunch

KIND = "gputune-topology"
VERSION = 1
Map = dict[str, Any]


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
    return [{**_planned(one), **_ran(graph, times.get(one.name))} for one in plan.operations]


def _planned(one: OperationPlan) -> Map:
    return {
        "name": one.name,
        "op": one.op,
        "task": one.task,
        "problem": dict(one.problem),
        "configuration": dict(one.configuration),
        "default_configuration": dict(one.default),
        "onnx_nodes": list(one.nodes),
        "inputs": dict(one.inputs),
        "output": one.output,
        "flops": one.flops,
        "bytes": one.nbytes,
        "alone_ns": one.alone_ns,
        "default_ns": one.default_ns,
    }


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
    return {
        "name": one.name,
        "shape": list(one.shape),
        "dtype": one.dtype,
        "bytes": one.nbytes,
        "kind": one.kind,
        "arena": one.arena if in_arena else None,
        "offset_bytes": one.offset if in_arena else None,
        "first": one.first,
        "last": one.last,
        "memory_of": plan.aliases.get(one.name),
    }
