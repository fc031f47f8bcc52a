"""Test the topology: every operation, edge and tensor of the schematic with the times of the log."""

import json

from gputune.client.viewer.profile import profile_of
from gputune.client.viewer.topology import topology_of
from tests.client.viewer.made_up_plans import plan, schematic
from tests.runtime.profiling import made_up

GRAPH = made_up.graph(["stem", "left", "left", "join"])
LOG = made_up.read(made_up.written([GRAPH], [made_up.inference([1000, 200, 300, 50])]))


def test_operations_edges_and_tensors_are_there() -> None:
    described = schematic(plan(GRAPH, [(0, 1), (0, 2), (1, 2)], ops=["Conv", "Relu", "Add"]))
    topology = topology_of(profile_of([LOG], described))
    assert json.loads(json.dumps(topology, allow_nan=False)) == topology
    [graph] = topology["graphs"]
    assert [(edge["from"], edge["to"], edge["tensor"]) for edge in graph["edges"]] == [
        ("stem", "left", "stem:0"),
        ("stem", "join", "stem:0"),
        ("left", "join", "left:0"),
    ]
    left = graph["operations"][1]
    assert (left["op"], left["total_ns"], left["onnx_nodes"], left["configuration"]) == (
        "Relu",
        500,
        ["left"],
        {"tile": 8},
    )
    assert [(each["place"], each["median_ns"], each["global_size"]) for each in left["launches"]] == [
        (1, 200.0, [64]),
        (2, 300.0, [64]),
    ]
    tensors = {each["name"]: each for each in graph["tensors"]}
    assert [tensors["left:0"][name] for name in ("arena", "offset_bytes", "first", "last")] == [0, 256, 1, 2]
    assert [tensors["x"][name] for name in ("kind", "arena", "first", "last")] == ["input", None, -1, 0]
    assert tensors["y"]["last"] == len(graph["operations"])
    named = {name for one in graph["operations"] for name in (*one["inputs"].values(), one["output"])}
    assert named == set(tensors)


def test_without_a_schematic_there_are_operations_and_launches() -> None:
    topology = topology_of(profile_of([LOG], None))
    [graph] = topology["graphs"]
    assert (topology["model"], graph["edges"], graph["tensors"]) == (None, [], [])
    assert [(one["name"], one["total_ns"], len(one["launches"])) for one in graph["operations"]] == [
        ("stem", 1000, 1),
        ("left", 500, 2),
        ("join", 50, 1),
    ]
