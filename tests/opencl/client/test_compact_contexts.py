"""Test compact contexts on a real device: what it packs on loading equals a packed context, bit for bit.

test_argument_forms.py has the outputs of each kind of model.
"""

from pathlib import Path

import pytest

from gputune.client.context.memory import weights
from gputune.core.quirks import groups_at_once
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context
from tests.opencl.contexts import MODELS, compiling, loaded, outputs, written


@pytest.mark.parametrize("algorithm", [2, pytest.param(4, marks=pytest.mark.night)])
def test_filters_are_transformed_as_winograd_has_them(backend: Backend, tmp_path: Path, algorithm: int) -> None:
    models = {"model": MODELS["convolution"]()}
    packed, compact = written(tmp_path, models, compiling(backend), backend, algorithm=algorithm)
    with open_context(packed) as wide, open_context(compact) as file:
        nbytes = [sum(one.header.sections[index].length for index in one.header.weights) for one in (wide, file)]
        assert nbytes[1] < nbytes[0]
        assert [one.entry for one in file.header.packing[0].launches] == ["pack_winograd"]
    one, other = (loaded(backend, path) for path in (packed, compact))
    assert outputs(one, 1) == outputs(other, 1)


def test_binaries_pack_and_persistent_kernels_read_what_was_packed(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "PART_BYTES", 1)
    models = {"model": MODELS["blocks"]()}
    packed, compact = written(tmp_path, models, compiling(backend), backend, persistent=True)
    one, other = (loaded(backend, path) for path in (packed, compact))
    assert len(other.header.packing) > 1, "each operation has a part of its own"
    assert not other.warnings
    assert bool(other.graph.persistent) == bool(groups_at_once(backend.identity))
    for seed in range(2):
        for persistent in (True, False):
            one.persistent_kernels = other.persistent_kernels = persistent
            assert outputs(one, seed) == outputs(other, seed)
