"""Test contexts that feed each other, on the null device: what is linked, named, counted and refused."""

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import ContextClosed
from gputune.runtime import MemHandle, pipeline
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context, TensorRecord
from gputune.runtime.counters import TensorCounters

Make = Callable[..., Path]
X = np.zeros((2, 4), np.float32)


@pytest.fixture
def make(context: Context, tmp_path: Path) -> Make:
    """Writes a context with these inputs and outputs, as name or (name, shape)."""

    def tensors(wanted: Any) -> tuple[TensorRecord, ...]:
        return tuple(TensorRecord(one, (2, 4)) if isinstance(one, str) else TensorRecord(*one) for one in wanted)

    def write(name: str, inputs: Any, outputs: Any) -> Path:
        graph = dataclasses.replace(context.graphs[0], name=name, inputs=tensors(inputs), outputs=tensors(outputs))
        write_context(tmp_path / f"{name}.bin", dataclasses.replace(context, graphs=(graph,)))
        return tmp_path / f"{name}.bin"

    return write


def test_what_is_between_stages_is_neither_given_nor_copied(make: Make) -> None:
    paths = [make("one", ["x"], ["a", "side"]), make("two", ["a"], ["b"]), make("three", ["b", "more"], ["y"])]
    with pipeline(paths, "null") as stages:
        assert list(stages.inputs) == ["x", "more"]
        assert list(stages.outputs) == ["side", "y"]
        results = stages.run({"x": X, "more": X})
        assert {name: value.shape for name, value in results.items()} == {"side": (2, 4), "y": (2, 4)}
        first, second, third = (stage.counters.last for stage in stages.stages)
        assert (first["a"], second["a"], second["b"], third["b"]) == (TensorCounters(),) * 4
        assert [one.bytes_copied for one in (first["x"], first["side"], third["more"], third["y"])] == [32] * 4
        with MemHandle.allocate(32) as x, MemHandle.allocate(32) as y:
            assert stages.run({"x": x, "more": X}, {"y": y})["y"].ctypes.data == y.address
            for stage in stages.stages:
                stage.release(x)
                stage.release(y)


def test_tensors_of_other_names_are_linked_in_order_or_as_is_said(make: Make) -> None:
    paths = [make("one", ["x"], ["a", "b"]), make("two", ["c", "d"], ["x"])]
    with pipeline(paths, "null") as stages:
        assert [(link.output, link.input) for link in stages.links[0]] == [("a", "c"), ("b", "d")]
    with pipeline(paths, "null", links=[{"b": "c"}]) as stages:
        assert (list(stages.inputs), list(stages.outputs)) == (["x", "d"], ["a", "x"])


def test_a_name_of_two_stages_is_told_with_its_stage(make: Make) -> None:
    paths = [make("one", ["x", "k"], ["a"]), make("two", ["a", "k"], ["y"])]
    with pipeline(paths, "null") as stages:
        assert list(stages.inputs) == ["x", "0/k", "1/k"]
        stages.run({"x": X, "0/k": X, "1/k": X, "k": X[:0]})
        with pytest.raises(ValueError, match="the pipeline has no input 'k'; there are"):
            stages.run({"x": X, "k": X})
        with pytest.raises(ValueError, match="no output 'a'"):
            stages.run({"x": X, "0/k": X, "1/k": X}, {"a": X})


def test_what_does_not_fit_is_refused_when_it_is_loaded(make: Make) -> None:
    one = make("one", ["x"], ["a"])
    other = make("two", [("a", (4, 2))], ["y"])
    with pytest.raises(ValueError, match=r"output 'a' is float32\[2, 4\], input 'a' takes float32\[4, 2\]"):
        pipeline([one, other], "null")
    whole = make("three", [("a", (2, 4), "int32")], ["y"])
    with pytest.raises(ValueError, match=r"output 'a' is float32\[2, 4\], input 'a' takes int32\[2, 4\]"):
        pipeline([one, whole], "null")
    two = make("four", ["p", "q"], ["y"])
    with pytest.raises(ValueError, match="have no tensor in common: outputs 'a', inputs 'p', 'q'; give links"):
        pipeline([one, two], "null")
    for links, words in (
        ([], "2 contexts need 1 maps of links, there are 0"),
        ([{"z": "p"}], "there is no output 'z'"),
        ([{"a": "z"}], "there is no input 'z'"),
    ):
        with pytest.raises(ValueError, match=words):
            pipeline([one, two], "null", links=links)
    both = make("five", ["x"], ["a", "b"])
    with pytest.raises(ValueError, match="two outputs are linked to one input"):
        pipeline([both, two], "null", links=[{"a": "p", "b": "p"}])


def test_what_is_linked_belongs_to_the_pipeline(make: Make) -> None:
    with pipeline([make("one", ["x"], ["a"]), make("two", ["a"], ["y"])], "null") as stages:
        with pytest.raises(ValueError, match="input 'a' of graph 'two' is linked to another graph"):
            stages.stages[1].run({"a": X})
        with MemHandle.allocate(32) as memory, pytest.raises(ValueError, match="output 'a' of graph 'one' is linked"):
            stages.stages[0].register("a", memory)


def test_threads_take_turns_and_close_ends_it(make: Make) -> None:
    stages = pipeline([make("one", ["x"], ["a"]), make("two", ["a"], ["y"])], "null")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                stages.run({"x": X})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert stages.stages[1].counters.inferences == 200
    stages.close()
    stages.close()
    with pytest.raises(ContextClosed):
        stages.run({"x": X})
