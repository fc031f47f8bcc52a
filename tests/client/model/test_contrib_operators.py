"""Compare operators that onnxruntime's optimiser makes of several, and attention of com.microsoft, with onnxruntime."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gputune.client.errors import UnsupportedNodes
from gputune.client.model.reference import evaluate
from tests.client.models import Array
from tests.client.plans import Lowered, assert_agrees, assert_whole, computed_by_onnxruntime

RANDOM = np.random.default_rng(5)
B, S, N, H = 2, 5, 4, 16
D = N * H


def some(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def whole(*values: Any) -> Array:
    return np.array(values, np.int32)


def ids(most: int, *shape: int) -> Array:
    return RANDOM.integers(0, most, shape).astype(np.int32)


ROWS, MAP, GAMMA, BETA = some(B, S, D), some(2, 4, 7, 9), some(D), some(D)
WEIGHTS, BIAS = some(D, 3 * D) / 6, some(3 * D)
PAST, CACHE = some(2, B, N, 3, H), some(B, N, 3, H)
RAW = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], np.int32)
"""The second batch is padded on the left, so that its first row sees nothing where attention is causal."""
LONG_RAW = np.concatenate([np.ones((B, 3), np.int32), RAW], 1)
COS, SIN = np.cos(some(16, H // 2)), np.sin(some(16, H // 2))
EACH = [some(B, S, D) for _ in range(3)]
FEW = [some(B, S, D), some(B, S, 2 * H), some(B, S, 2 * H)]
ONE = [some(B, 1, D), some(B, 1, 2 * H), some(B, 1, 2 * H)]
BUFFERS = [some(B, 2, 9, H), some(B, 2, 9, H)]
LENGTHS = whole(6, 3)
HEADS = {"num_heads": N}
GROUPED = {"num_heads": N, "kv_num_heads": 2}
CONVOLVED = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}

Case = tuple[str, list[Any], dict[str, Any], Sequence[str]]
CASES: dict[str, Case] = {
    "FusedMatMul": ("FusedMatMul", [some(2, 3, 4, 5), some(2, 3, 5, 6)], {"alpha": 0.3}, "y"),
    "FusedMatMul of columns": ("FusedMatMul", [some(2, 3, 5, 4), some(6, 5)], {"transA": 1, "transB": 1}, "y"),
    "FusedMatMul of batches": (
        "FusedMatMul", [some(4, 2, 3, 5), some(6, 2, 3, 5)], {"transBatchA": 1, "transBatchB": 1, "transB": 1}, "y",
    ),
    "FusedMatMul of batches and columns": (
        "FusedMatMul", [some(5, 2, 3, 4), some(5, 2, 3, 6)], {"transBatchA": 1, "transA": 1, "transBatchB": 1}, "y",
    ),
    **{f"FusedConv, {name}": (
        "FusedConv", [MAP, some(6, 4, 3, 3), some(6)],
        {"activation": name, "activation_params": numbers} | CONVOLVED, "y",
    ) for name, numbers in {"Relu": None, "Sigmoid": None, "Tanh": None, "LeakyRelu": [0.2], "Clip": [-0.5, 0.7],
                            "HardSigmoid": [0.3, 0.6]}.items()},
    "FusedConv with a sum": (
        "FusedConv", [MAP, some(6, 2, 3, 3), some(6), some(2, 6, 4, 5)],
        {"activation": "Relu", "strides": [2, 2], "group": 2} | CONVOLVED, "y",
    ),
    "FusedConv without activation": ("FusedConv", [MAP, some(6, 4, 3, 3)], {"auto_pad": "SAME_UPPER"}, "y"),
    "FusedGemm": (
        "FusedGemm", [some(5, 7), some(6, 7), some(6)],
        {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1, "alpha": 0.5, "beta": 2.0}, "y",
    ),
    "FusedGemm, Relu": ("FusedGemm", [some(5, 7), some(7, 6)], {"activation": "Relu"}, "y"),
    "BiasGelu": ("BiasGelu", [ROWS, BETA], {}, "y"),
    "Gelu": ("Gelu", [ROWS], {}, "y"),
    "FastGelu": ("FastGelu", [ROWS, BETA], {}, "y"),
    "QuickGelu": ("QuickGelu", [ROWS], {}, "y"),
    "QuickGelu, alpha": ("QuickGelu", [ROWS], {"alpha": 0.7}, "y"),
    "SkipLayerNormalization": (
        "SkipLayerNormalization", [ROWS, EACH[0], GAMMA, BETA, BETA], {"epsilon": 1e-5}, ["y", "", "", "total"],
    ),
    "SkipLayerNormalization of rows for all": ("SkipLayerNormalization", [ROWS, some(S, D), GAMMA], {}, "y"),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization", [ROWS, EACH[0], GAMMA, BETA], {"epsilon": 1e-4}, ["y", "", "", "total"],
    ),
    "EmbedLayerNormalization": (
        "EmbedLayerNormalization",
        [ids(20, B, S), ids(2, B, S), some(20, D), some(16, D), some(2, D), GAMMA, BETA, RAW], {"epsilon": 1e-5},
        ["y", "mask"],
    ),
    "EmbedLayerNormalization of places": (
        "EmbedLayerNormalization", [ids(20, B, S), "", some(20, D), some(16, D), "", GAMMA, BETA, "", ids(16, B, S)],
        {}, ["y", "mask", "total"],
    ),
    "Attention": ("Attention", [ROWS, WEIGHTS, BIAS], HEADS, "y"),
    "Attention with a present": ("Attention", [ROWS, WEIGHTS, BIAS, "", PAST], HEADS, ["y", "present"]),
    "Attention of other values": (
        "Attention", [ROWS, some(D, 2 * D + 2 * D // 2) / 6, some(2 * D + D)],
        HEADS | {"qkv_hidden_sizes": [D, D, D], "scale": 0.4}, "y",
    ),
    "Attention of small values": (
        "Attention", [ROWS, some(D, 2 * D + 12) / 6, some(2 * D + 12)], HEADS | {"qkv_hidden_sizes": [D, D, 12]}, "y",
    ),
    **{f"Attention with {name}{', causal' if causal else ''}": (
        "Attention", [ROWS, WEIGHTS, BIAS, mask], HEADS | {"unidirectional": causal}, "y",
    ) for causal in (0, 1) for name, mask in {
        "no mask": "", "lengths": whole(3, 5), "ends and starts": whole(4, 5, 1, 2), "a raw mask": RAW,
        "a mask of rows": ids(2, B, S, S)}.items()},
    "Attention with numbers": (
        "Attention", [ROWS, WEIGHTS, BIAS, RAW, "", some(B, N, S, S)], HEADS | {"mask_filter_value": -3.0}, "y",
    ),
    "Attention with a past": (
        "Attention", [ROWS, WEIGHTS, BIAS, LONG_RAW, PAST], HEADS | {"unidirectional": 1},
        ["y", "present"],
    ),
    "MultiHeadAttention": ("MultiHeadAttention", EACH, HEADS, "y"),
    "MultiHeadAttention with a bias": ("MultiHeadAttention", [*EACH, BIAS], HEADS | {"scale": 0.2}, "y"),
    "MultiHeadAttention across": (
        "MultiHeadAttention", [ROWS, some(B, 7, D), some(B, 7, 12)], HEADS, ["y", "key", "value"],
    ),
    "MultiHeadAttention of kept keys": (
        "MultiHeadAttention", [ROWS, some(B, N, 7, H), some(B, N, 7, H)], HEADS, "y",
    ),
    "MultiHeadAttention with a past": (
        "MultiHeadAttention", [*EACH, "", "", "", CACHE, CACHE[::-1].copy()], HEADS, ["y", "key", "value"],
    ),
    "MultiHeadAttention with a raw mask": ("MultiHeadAttention", [*EACH, "", RAW], HEADS, "y"),
    "MultiHeadAttention with lengths": ("MultiHeadAttention", [*EACH, BIAS, whole(3, 5)], HEADS, "y"),
    "MultiHeadAttention with all": (
        "MultiHeadAttention", [*EACH, BIAS, LONG_RAW, some(1, 1, S, S + 3), CACHE, CACHE],
        HEADS | {"unidirectional": 1, "mask_filter_value": -50.0}, ["y", "key", "value"],
    ),
    "RotaryEmbedding": ("RotaryEmbedding", [EACH[0], ids(16, B, S).astype(np.int64), COS, SIN], {}, "y"),
    "RotaryEmbedding from a place": ("RotaryEmbedding", [EACH[0], np.array([3]), COS, SIN], {}, "y"),
    "RotaryEmbedding of pairs": ("RotaryEmbedding", [EACH[0], np.array([3]), COS, SIN], {"interleaved": 1}, "y"),
    "RotaryEmbedding of heads": ("RotaryEmbedding", [some(B, N, S, H), np.array([0]), COS, SIN], {}, "y"),
    "RotaryEmbedding of a part": (
        "RotaryEmbedding", [EACH[0], np.array([0]), COS[:, :2].copy(), SIN[:, :2].copy()],
        {"num_heads": N, "rotary_embedding_dim": 4}, "y",
    ),
    "GroupQueryAttention": (
        "GroupQueryAttention", [*FEW, "", "", whole(4, 4), whole(5)], GROUPED, ["y", "key", "value"],
    ),
    "GroupQueryAttention, packed": (
        "GroupQueryAttention", [some(B, S, D + 4 * H), "", "", "", "", whole(4, 4), whole(5)], GROUPED,
        ["y", "key", "value"],
    ),
    "GroupQueryAttention of a step": (
        "GroupQueryAttention", [*ONE, *BUFFERS, LENGTHS, whole(7)], GROUPED, ["y", "key", "value"],
    ),
    "GroupQueryAttention of a turned step": (
        "GroupQueryAttention", [*ONE, *BUFFERS, LENGTHS, whole(7), COS, SIN],
        GROUPED | {"do_rotary": 1, "softcap": 2.0, "scale": 0.3}, ["y", "key", "value"],
    ),
    "GroupQueryAttention of a turned prompt": (
        "GroupQueryAttention", [*FEW, *BUFFERS, whole(4, 4), whole(5), COS, SIN],
        GROUPED | {"do_rotary": 1, "rotary_interleaved": 1}, ["y", "key", "value"],
    ),
    "GroupQueryAttention of a chunk": (
        "GroupQueryAttention", [each[:1] for each in (*FEW, *BUFFERS)] + [whole(7), whole(8), COS, SIN],
        GROUPED | {"do_rotary": 1}, ["y", "key", "value"],
    ),
    "GroupQueryAttention whose present is longer": (
        "GroupQueryAttention", [*ONE, *(each[:, :, 3:].copy() for each in BUFFERS), LENGTHS, whole(7)], GROUPED,
        ["y", "key", "value"],
    ),
    "GroupQueryAttention in a window": (
        "GroupQueryAttention", [*FEW, "", "", whole(4, 4), whole(5)], GROUPED | {"local_window_size": 2},
        ["y", "key", "value"],
    ),
    "GroupQueryAttention with numbers": (
        "GroupQueryAttention", [*ONE, *BUFFERS, LENGTHS, whole(7), "", "", "", some(B, N, 1, 7)], GROUPED,
        ["y", "key", "value"],
    ),
    "GroupQueryAttention, smooth": (
        "GroupQueryAttention", [*ONE, *BUFFERS, LENGTHS, whole(7)], GROUPED | {"smooth_softmax": 1},
        ["y", "key", "value"],
    ),
    "GroupQueryAttention with sinks": (
        "GroupQueryAttention", [*ONE, *BUFFERS, LENGTHS, whole(7), "", "", "", "", some(N)], GROUPED,
        ["y", "key", "value"],
    ),
}  # fmt: skip
CONSTANT = {
    "EmbedLayerNormalization": (2, 3, 4), "GatherBlockQuantized": (0, 2, 3), "GroupQueryAttention": (6,),
    "MatMulNBits": (1, 2, 3, 4, 5),
}  # fmt: skip
"""Inputs that are constants of the model, beside weights of convolutions."""


def model_of(
    op: str,
    inputs: list[Any],
    attributes: dict[str, Any],
    outputs: Sequence[str],
    domain: str = "com.microsoft",
    opset: int = 17,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The operator, and the values of its inputs, most of which are the model's."""
    values = {f"i{k}": value for k, value in enumerate(inputs) if not isinstance(value, str)}
    names = [f"i{k}" if f"i{k}" in values else "" for k in range(len(inputs))]
    constants = [f"i{k}" for k in CONSTANT.get(op, ())] + (["i1", "i2"] if "Conv" in op else [])
    attributes = {name: value for name, value in attributes.items() if value is not None}
    given = [name for name in values if name not in constants]
    node = helper.make_node(op, names, list(outputs), "node", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape)
         for name in given],
        [helper.make_empty_tensor_value_info(name) for name in outputs if name],
        [numpy_helper.from_array(values[name], name) for name in values if name not in given],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), {name: values[name] for name in given}


@pytest.mark.parametrize(("op", "inputs", "attributes", "outputs"), CASES.values(), ids=CASES)
def test_operators_compute_what_onnxruntime_does(
    lowered: Lowered, op: str, inputs: list[Any], attributes: dict[str, Any], outputs: Sequence[str]
) -> None:
    model, given = model_of(op, inputs, attributes, outputs)
    plan = lowered(model)
    assert_whole(plan)
    assert_agrees(model, plan, given)


@pytest.mark.parametrize("packed", ["keys", "all"])
def test_packed_heads_are_the_same(lowered: Lowered, packed: str) -> None:
    """onnxruntime packs them on GPUs only."""
    apart = [each.reshape(B, S, N, 1, H) for each in EACH]
    inputs = [EACH[0], np.concatenate(apart[1:], 3)] if packed == "keys" else [np.concatenate(apart, 3)]
    model, given = model_of("MultiHeadAttention", inputs, HEADS, "y")
    plain, others = model_of("MultiHeadAttention", EACH, HEADS, "y")
    (want,) = computed_by_onnxruntime(plain, others).values()
    np.testing.assert_allclose(evaluate(lowered(model), given)["y"], want, rtol=0, atol=1e-5)


REFUSED: dict[str, Case] = {
    "turns": ("Attention", [ROWS, WEIGHTS, BIAS], HEADS | {"do_rotary": 1}, "y"),
    "an unknown mask": ("Attention", [ROWS, WEIGHTS, BIAS, whole(*range(8))], HEADS, "y"),
    "an unknown activation": ("FusedGemm", [some(5, 7), some(7, 6)], {"activation": "Bend"}, "y"),
    "beams": ("MultiHeadAttention", [*EACH, "", "", "", CACHE, CACHE, whole(3)], HEADS, "y"),
    "packed batches": (
        "RotaryEmbedding", [EACH[0], np.array([3]), COS, SIN], {"is_packed_batching": 1, "num_heads": N}, "y",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attributes", "outputs"), REFUSED.values(), ids=REFUSED)
def test_unknown_uses_are_refused_by_name(
    lowered: Lowered, op: str, inputs: list[Any], attributes: dict[str, Any], outputs: Sequence[str]
) -> None:
    model, _ = model_of(op, inputs, attributes, outputs)
    with pytest.raises(UnsupportedNodes, match=f"com.microsoft.{op} node 'node' is not supported"):
        lowered(model)


@pytest.mark.parametrize("op", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_normalisations_in_the_domain_of_onnx(lowered: Lowered, op: str) -> None:
    """onnxruntime's optimiser makes them in every operator set."""
    model, given = model_of(op, [ROWS, GAMMA], {"axis": -1, "epsilon": 1e-3}, "y", domain="", opset=13)
    assert_agrees(model, lowered(model), given)
