"""Compare Concat, Resize and ConvTranspose kernels with their references, on sizes that fit no vector."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from gputune.client.cli.main import main
from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import Array
from gputune.kernels.ops import concat, conv_transpose, resize
from gputune.kernels.ops.concat import ConcatProblem
from gputune.kernels.ops.conv_transpose import ConvTransposeProblem
from gputune.kernels.ops.resize import ResizeProblem
from gputune.kernels.template import BASE_OPTIONS, template
from tests.client import models

RELU = Chain((Step("relu"),))
CHAIN = Chain((Step("add", operand=0), Step("hard_swish"), Step("mul", operand=1)))

CONCATS = [
    ConcatProblem(35, (24, 24, 24, 24)),
    ConcatProblem(17, (3, 1, 64)),
    ConcatProblem(1, (1000, 17)),
    ConcatProblem(300, (5, 16, 7, 1, 2, 9, 33, 8, 4)),
]
RESIZES = [
    ResizeProblem(2, 5, 7, 24, (10, 14), (1, 1), (2, 2), epilogue=CHAIN),
    ResizeProblem(1, 5, 7, 19, (40, 21), (1, 1), (8, 3)),
    ResizeProblem(2, 9, 12, 5, (4, 8), (9, 3), (4, 2), (-3, 1)),
    ResizeProblem(1, 6, 5, 3, (11, 9), (12, 10), (22, 18), (-30, 40), epilogue=RELU),
]
DECONVS = [
    ConvTransposeProblem(2, 5, 7, 24, 24, (2, 2), (2, 2), (10, 14), bias=True, epilogue=RELU),
    ConvTransposeProblem(1, 9, 13, 24, 1, (2, 2), (2, 2), (18, 26), bias=True, epilogue=RELU),
    ConvTransposeProblem(2, 5, 6, 7, 5, (5, 5), (2, 2), (10, 11), (3, 2), bias=True, epilogue=CHAIN),
    ConvTransposeProblem(1, 4, 3, 6, 6, (3, 2), (2, 3), (11, 13), (0, 0), (2, 3), bias=True),
    ConvTransposeProblem(1, 3, 3, 4, 9, (2, 2), (3, 3), (9, 9), bias=True, epilogue=CHAIN),
    ConvTransposeProblem(1, 5, 7, 6, 19, (3, 3), (1, 1), (5, 7), (1, 1), finite=False),
    ConvTransposeProblem(1, 4, 3, 6, 6, (3, 2), (2, 3), (11, 13), (0, 0), (2, 3), bias=True, finite=False),
    ConvTransposeProblem(2, 4, 5, 6, 24, (3, 4), (2, 2), (7, 10), (1, 1), groups=3, bias=True, epilogue=CHAIN),
    ConvTransposeProblem(1, 3, 7, 7, 7, (4, 4), (2, 2), (6, 13), (1, 2), groups=7, bias=True),
]


def tagged(problem: ConcatProblem) -> dict[str, Array]:
    """Parts in which every element is another number, so that none can be in another's place."""
    whole = np.arange(problem.rows * problem.length, dtype=np.float32).reshape(problem.rows, problem.length)
    parts = np.split(whole, np.cumsum(problem.parts)[:-1], axis=1)
    return {f"input{k}": np.ascontiguousarray(part) for k, part in enumerate(parts)}


@pytest.mark.parametrize("problem", CONCATS, ids=lambda p: f"{p.rows}x{p.parts}")
def test_concat_is_right(bench: Any, problem: ConcatProblem) -> None:
    bench.check(concat.FAMILY, problem, sampled=1)
    got, damage = bench.run(concat.FAMILY, problem, concat.FAMILY.default(problem, bench.limits), tagged(problem))
    assert got.ravel().tolist() == list(range(got.size))
    assert not damage


@pytest.mark.parametrize("problem", RESIZES, ids=lambda p: f"{p.size}-{p.output}-{p.channels}")
def test_resize_is_right(bench: Any, problem: ResizeProblem) -> None:
    bench.check(resize.FAMILY, problem, sampled=1)


@pytest.mark.parametrize(
    "problem", DECONVS, ids=lambda p: f"{p.kernel}-{p.strides}-{p.in_channels}-{p.out_channels}-{p.groups}"
)
def test_transposed_convolution_is_right(bench: Any, problem: ConvTransposeProblem) -> None:
    bench.check(conv_transpose.FAMILY, problem, sampled=1, turn=DECONVS.index(problem))


@pytest.mark.parametrize(
    "name", ["concat_parts.cl", "resize_nearest.cl", "conv_transpose_tiled.cl", "pack_transposed.cl"]
)
def test_the_template_compiles_alone(bench: Any, name: str) -> None:
    bench.backend.build(template(name), BASE_OPTIONS)


@pytest.mark.usefixtures("_reached")
def test_a_model_of_them_agrees_with_onnxruntime(tmp_path: Path) -> None:
    """The whole way, with constants among what is joined and a result that is read twice."""
    body = """a = Conv<pads=[1,1,1,1]>(x, u)
              h = Conv<strides=[2,2], pads=[1,1,1,1]>(x, u)
              r = Resize(h, , s)
              q = Add(a, r)
              c = Concat<axis=1>(w, q, x, a, w)
              y = ConvTranspose<strides=[2,2], pads=[1,0,1,1]>(c, k)"""
    weights: dict[str, Any] = {
        "u": (5, 3, 3, 3),
        "w": (1, 2, 8, 6),
        "s": models.numbers(1, 1, 2, 2),
        "k": (17, 7, 3, 3),
    }
    path = models.save(models.build("(float[1,3,8,6] x) => (float[a,b,c,d] y)", body, weights), tmp_path)
    arguments = ["--model", str(path), "--binary_file", "small", "--output_dir", str(tmp_path), "--log_level", "warn"]
    arguments += ["--tuning_effort", "none"]
    with pytest.raises(SystemExit) as ended:
        main(["context-binary-generator", *arguments])
    assert ended.value.code == 0
    given = np.random.default_rng(3).standard_normal((1, 3, 8, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", given)
    program = (  # in a process of its own: this one may have another driver open
        "import sys, numpy, gputune.runtime; context = gputune.runtime.load(sys.argv[1] + '/small.bin')\n"
        "(y,) = context.run({'x': numpy.load(sys.argv[1] + '/x.npy')}).values(); numpy.save(sys.argv[1] + '/y.npy', y)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": given})[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=0, atol=1e-5 * np.abs(want).max())
