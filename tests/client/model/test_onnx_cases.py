"""Run ONNX's own test suite through import, passes, lowering and the references of the plans, without a device."""

import re

import pytest

from models.onnx_suite_worker import GROUPS, REFUSED, ByReferences, cases, result_of

TAKES_LONG = ("averagepool", "lppool", "maxpool")
"""To compute what their cases expect; test_windows.py has poolings of all kinds."""
ROUNDED = {
    "test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded",
    "test_linear_attention_fp16", "test_linear_attention_fp16_expanded",
}  # fmt: skip
"""ONNX expects here the sums of float16 that it comes to itself; ours are a step of float16 apart, which is more than
it allows."""
PARTS = [
    *(pytest.param(group, "", marks=pytest.mark.night if group in TAKES_LONG else ()) for group in GROUPS
      if group != "attention"),
    ("attention", "^(?!.*(_3d|_expanded$))"),
    # 3d is 4d behind reshapes, and expanded is what gputune makes of it, too
    pytest.param("attention", "_3d|_expanded$", marks=pytest.mark.night),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning:onnx")
@pytest.mark.parametrize(("group", "pattern"), PARTS)
def test_cases_are_right_or_refused_for_a_reason_that_is_known(group: str, pattern: str) -> None:
    found = {
        name: result_of(case, ByReferences)
        for (_, name), case in cases(ByReferences, [group]).items()
        if re.search(pattern, name)
    }
    failed = {name: result["detail"] for name, result in found.items() if result["status"] == "failed"}
    assert failed.keys() == ROUNDED & found.keys(), failed
    assert {name for name, result in found.items() if result["status"] == "excluded"} == REFUSED.keys() & found.keys()
