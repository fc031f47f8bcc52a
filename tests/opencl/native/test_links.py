"""Test that a network in two parts, linked in C on a real device, gives the whole network's results."""

from pathlib import Path

import numpy as np
import onnx
import onnx.utils
import pytest

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.runtime.backends import Backend
from gputune.runtime.native.binding import Native
from tests.client import models
from tests.opencl.contexts import contexts, inputs_of, loaded


@pytest.mark.parametrize("one_by_one", [False, True])
def test_two_parts_give_what_the_whole_gives_and_hand_over_without_a_copy(
    native: Native, backend: Backend, tmp_path: Path, one_by_one: bool
) -> None:
    whole = models.conv_relu_gemm()
    path = models.save(whole, tmp_path)
    middle = whole.graph.node[len(whole.graph.node) // 2 - 1].output[0]
    initial = {item.name for item in whole.graph.initializer}
    given = [item.name for item in whole.graph.input if item.name not in initial]
    taken = [item.name for item in whole.graph.output]
    paths = []
    for name, first, last in (("backbone", given, [middle]), ("head", [middle], taken)):
        onnx.utils.extract_model(str(path), str(tmp_path / f"{name}.onnx"), first, last)
        paths.append(contexts(backend, lower(read_model(tmp_path / f"{name}.onnx")), tmp_path / f"{name}.bin"))
    with (
        loaded(backend, contexts(backend, lower(read_model(path)), tmp_path / "whole.bin")) as alone,
        native.open(paths[0]) as one,
        native.open(paths[1]) as other,
        native.device(one, backend.identity.name) as device,
        device.group([one, other]) as group,
        device.load(one, group=group, one_by_one=one_by_one) as backbone,
        device.load(other, group=group, one_by_one=one_by_one) as head,
    ):
        backbone.link(middle, head, middle)
        inputs = [inputs_of(alone, seed) for seed in range(5)]
        for each in [*inputs, *inputs]:
            assert backbone.run(each) == {}
            got, want = head.run({}), alone.run(each)
            for name, array in want.items():
                np.testing.assert_allclose(got[name], array, rtol=0, atol=1e-5 * np.abs(array).max())
        copied = [sum(array.nbytes for array in each.values()) for each in (inputs[0], want)]
        assert [graph.counters()[1]["bytes_copied"] for graph in (backbone, head)] == copied
        for each in inputs:  # what has not been waited for is not written over
            backbone.run(each)
        (name,) = want
        np.testing.assert_array_equal(head.run({})[name], got[name])
