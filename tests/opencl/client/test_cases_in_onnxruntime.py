"""Run a sample of ONNX's node cases in onnxruntime with the plugin; test_every_onnx_case.py runs all of them."""

import functools
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import tool
from gputune.runtime.onnxruntime import LIBRARY
from tests.onnxruntime.sessions import plugin
from tests.onnxruntimes import VERSIONS, child_environment

PASSES: Mapping[str, Sequence[str]] = {
    "add": ("add_bcast", "add_uint8"),
    "affinegrid": ("affine_grid_3d_align_corners_expanded",),
    "and_": ("and_bcast4v2d",),
    "argmax": ("argmax_default_axis_random",),
    "batch_normalization": ("batchnorm_example",),
    "bitshift": ("bitshift_left_uint8",),
    "bitwiseand": ("bitwise_and_i32_2d",),
    "clip": ("clip_default_int8_min",),
    "concat": ("concat_3d_axis_negative_2",),
    "conv": ("basic_conv_with_padding", "conv_with_strides_and_asymmetric_padding"),
    "convtranspose": ("convtranspose_pad",),
    "depthtospace": ("depthtospace_crd_mode_example",),
    "div": ("div_int32_trunc",),
    "equal": ("equal_int8",),
    "erf": ("erf",),
    "expand": ("expand_dim_changed",),
    "gather": ("gather_2d_indices",),
    "gathernd": ("gathernd_example_int32_batch_dim1",),
    "gemm": ("gemm_all_attributes",),
    "globalaveragepool": ("globalaveragepool",),
    "greater_or_equal": ("greater_equal_bcast",),
    "gru": ("gru_defaults",),
    "instance_normalization": ("instancenorm_example",),
    "isnan": ("isnan",),
    "layernormalization": ("layer_normalization_2d_axis1",),
    "leakyrelu": ("leakyrelu_example",),
    "logsoftmax": ("logsoftmax_axis_1",),
    "lppool": ("lppool_1d_default", "lppool_2d_pads"),
    "lrn": ("lrn_default",),
    "matmul": ("matmul_1d_1d", "matmul_4d"),
    "max": ("max_int16",),
    "maxpool": ("maxpool_2d_uint8", "maxpool_with_argmax_2d_precomputed_pads"),
    "mod": ("mod_mixed_sign_int64",),
    "negativeloglikelihoodloss": ("nllloss_NC",),
    "not_": ("not_4d",),
    "onehot": ("onehot_with_axis",),
    "pad": ("reflect_pad",),
    "pow": ("pow_types_float32_int32",),
    "prelu": ("prelu_broadcast",),
    "reducel2": ("reduce_l2_keep_dims_random",),
    "reducemax": ("reduce_max_bool_inputs",),
    "reducemean": ("reduce_mean_do_not_keepdims_random",),
    "reduceprod": ("reduce_prod_negative_axes_keepdims_random",),
    "reducesum": ("reduce_sum_empty_axes_input_noop_example",),
    "reshape": ("reshape_reordered_all_dims",),
    "resize": ("resize_upsample_scales_linear",),
    "scatterelements": ("scatter_elements_with_axis",),
    "sigmoid": ("sigmoid",),
    "slice": ("slice_neg_steps",),
    "softmax": ("softmax_default_axis",),
    "softmax_cross_entropy_loss": ("sce_mean_log_prob",),
    "split": ("split_variable_parts_2d_opset13",),
    "tile": ("tile",),
    "topk": ("top_k",),
    "transpose": ("transpose_all_permutations_3",),
    "trilu": ("tril_square",),
    "unsqueeze": ("unsqueeze_two_axes",),
    "where": ("where_long_example",),
}
"""By the files of onnx that make them. Not averagepool, because onnx takes seconds to compute what its cases expect."""
QUICK: Mapping[str, Mapping[str, Sequence[str]]] = {
    "newest": {
        "add": ("add_uint8",),
        "conv": ("basic_conv_with_padding",),
        "matmul": ("matmul_1d_1d",),
        "reducemax": ("reduce_max_bool_inputs",),
        "slice": ("slice_neg_steps",),
        "where": ("where_long_example",),
    },
    "oldest": {"add": ("add_uint8",)},
}
"""What runs for every commit; all others run at night."""
IN_THE_OLDEST = ("add", "affinegrid", "conv", "gemm", "matmul", "not_", "reducesum", "split", "topk")
AT_NIGHT = {
    version: {
        file: [name for name in PASSES[file] if name not in QUICK[version].get(file, ())]
        for file in (PASSES if version == "newest" else IN_THE_OLDEST)
    }
    for version in VERSIONS
}
CASES = [
    pytest.param(version, night, name, marks=[pytest.mark.night] * night)
    for night, wanted in enumerate((QUICK, AT_NIGHT))
    for version, files in wanted.items()
    for names in files.values()
    for name in names
]


@functools.cache
def results_in(version: str, night: int) -> Mapping[str, Mapping[str, Any]]:
    """Return what a process that runs the cases in this version of onnxruntime says of each, as far as it comes."""
    files = (AT_NIGHT if night else QUICK)[version]
    names = [name for each in files.values() for name in each]
    command = [*tool.module("models.onnx_suite_worker"), "onnxruntime", *files]
    environment = child_environment(version)
    path = os.pathsep.join(filter(None, [str(tool.SCRIPTS), environment.get("PYTHONPATH")]))
    ran = subprocess.run(
        command,
        input="".join(f"node test_{name}\n" for name in names),
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "PYTHONPATH": path, LIBRARY: str(plugin())},
    )
    return dict(zip(names, map(json.loads, ran.stdout.splitlines()[1:]), strict=False))


@pytest.mark.parametrize(("version", "night", "name"), CASES)
def test_parts_of_a_case_run_on_the_device_and_are_right(version: str, night: int, name: str) -> None:
    result = results_in(version, night).get(name, {"status": "its process has ended", "detail": ""})
    assert (result["status"], result["detail"]) == ("passed", "")
    assert result["operations"] > 0
