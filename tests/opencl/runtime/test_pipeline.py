"""Test that a network in two parts on a real device gives the whole network's results."""

from pathlib import Path

import numpy as np
import onnx
import onnx.utils

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.runtime import MemHandle
from gputune.runtime.backends import Backend
from gputune.runtime.loading.pipeline import Link, Pipeline
from tests.client import models
from tests.opencl.contexts import contexts, inputs_of, loaded
from tests.opencl.runtime.test_groups import group_of


def test_two_parts_give_what_the_whole_gives_and_hand_over_without_a_copy(backend: Backend, tmp_path: Path) -> None:
    whole = models.conv_relu_gemm()
    path = models.save(whole, tmp_path)
    middle = whole.graph.node[len(whole.graph.node) // 2 - 1].output[0]
    given, taken = [item.name for item in whole.graph.input], [item.name for item in whole.graph.output]
    initial = {item.name for item in whole.graph.initializer}
    model_inputs = [name for name in given if name not in initial]
    paths = []
    for name, first, last in (("backbone", model_inputs, [middle]), ("head", [middle], taken)):
        onnx.utils.extract_model(str(path), str(tmp_path / f"{name}.onnx"), first, last)
        paths.append(contexts(backend, lower(read_model(tmp_path / f"{name}.onnx")), tmp_path / f"{name}.bin"))
    alone = loaded(backend, contexts(backend, lower(read_model(path)), tmp_path / "whole.bin"))
    group = group_of(backend, paths)
    with Pipeline(group, [group["backbone"], group["head"]], [[Link(middle, middle)]]) as stages:
        (y,) = stages.outputs
        with MemHandle.allocate(stages.outputs[y].nbytes) as memory:
            for seed in range(5):
                inputs = inputs_of(alone, seed)
                want = alone.run(inputs)[y]
                for got in (stages.run(inputs)[y], stages.run(inputs, {y: memory})[y]):
                    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
            for stage, name in zip(stages.stages, (middle, middle), strict=True):
                assert stage.counters.total[name].bytes_copied == 0
            stages.stages[1].release(memory)
