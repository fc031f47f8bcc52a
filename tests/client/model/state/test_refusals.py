"""Test what cannot have a state: the message names the node or the tensor, and says why."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gputune.client.errors import GputuneError
from gputune.client.model.importer import load
from gputune.client.model.model_files import StateChoice
from gputune.client.model.state import Stateful, with_state

from ...models import build

JOINED = "present = Concat<axis = 1> (past, x)"
INPUTS = "float[1, 1, 4] x, float[1, P, 4] past"

# name: signature, body, weights, choice, message
REFUSED: dict[str, tuple[str, str, Mapping[str, Any], StateChoice, str]] = {
    "a mean over the past": (
        f"({INPUTS}) => (float[1, Q, 4] present, float[1, 1, 4] y)",
        f"{JOINED} y = ReduceMean<axes = [1]> (present)",
        {},
        StateChoice(8),
        "ReduceMean node 'y' is not supported: it works along the rows of the past, and would see those that are not "
        "there yet",
    ),
    "rows and another axis in one": (
        f"({INPUTS}) => (float[1, Q, 4] present, float[1, R] y)",
        f"{JOINED} y = Flatten<axis = 1> (present)",
        {},
        StateChoice(8),
        "a dimension of tensor 'y' of model .* is 12, 20 and 32 with pasts of 2, 4 and 7 rows",
    ),
    "the past without the new rows": (
        f"({INPUTS}) => (float[1, Q, 4] present, float[1, P, 4] y)",
        f"{JOINED} y = Relu (past)",
        {},
        StateChoice(8),
        "Relu node 'y' is not supported: it reads the past 'past' other than by joining it with new rows behind it",
    ),
    "new rows in front": (
        f"({INPUTS}) => (float[1, Q, 4] present)",
        "present = Concat<axis = 1> (x, past)",
        {},
        StateChoice(8, (("past", "present"),)),
        "Concat node 'present' is not supported: it reads the past 'past' other than",
    ),
    "the past joined twice": (
        f"({INPUTS}) => (float[1, Q, 4] present, float[1, Q, 4] y)",
        f"{JOINED} twice = Neg (x) y = Concat<axis = 1> (past, twice)",
        {},
        StateChoice(8),
        "Concat node 'y' is not supported: it joins the past 'past', and so does another node",
    ),
    "rows of the past beside others": (
        f"({INPUTS}) => (float[1, Q, 4] present, float[1, R, 4] y)",
        f"{JOINED} y = Concat<axis = 1> (present, x)",
        {},
        StateChoice(8),
        "Concat node 'y' is not supported: it joins rows of the past with others",
    ),
    "an operator that mixes rows": (
        f"({INPUTS}) => (float[1, Q, 4] present, float[1, R, 4] y)",
        f"{JOINED} y = Conv<pads = [1, 0, 1, 0], kernel_shape = [3, 1]> (z, w) z = Unsqueeze<axes = [1]> (present)",
        {"w": (1, 1, 3, 1)},
        StateChoice(8),
        "Conv node 'y' is not supported: it may mix the rows of the past",
    ),
    "a row from the middle": (
        f"({INPUTS}) => (float[1, Q, 4] present, float[1, 4, 4] y)",
        f"{JOINED} n = Shape (past) l = Gather (n, one) h = Div (l, three) i = Range (h, l, one0) y = Gather<axis = 1> "
        "(present, i)",
        {"one": np.array(1), "one0": np.array(1), "three": np.array(3)},
        StateChoice(8),
        "a dimension of tensor 'i' of model .* is 2, 3 and 5 with pasts of 2, 4 and 7 rows",
    ),
    "an output that is not the past": (
        f"({INPUTS}) => (float[1, Q, 4] present, float[1, Q, 4] y)",
        f"{JOINED} y = Neg (present)",
        {},
        StateChoice(8, (("past", "y"),)),
        "Neg node 'y' is not supported: output 'y' is not the past 'past' with the new rows behind it",
    ),
    "no output that joins": (
        f"({INPUTS}) => (float[1, P, 4] y)",
        "y = Add (past, x)",
        {},
        StateChoice(8),
        "no output of model .* is an input with new rows behind it; name the pairs",
    ),
    "no such input": (
        f"({INPUTS}) => (float[1, Q, 4] present)",
        JOINED,
        {},
        StateChoice(8, (("state*", "new*"),)),
        "model .* has no input 'state\\*'; it has x, past",
    ),
    "no such output": (
        f"({INPUTS}) => (float[1, Q, 4] present)",
        JOINED,
        {},
        StateChoice(8, (("pa*", "new*"),)),
        "model .* has input 'past', but no output 'newst'",
    ),
    "two dimensions that are open": (
        "(float[N, 1, 4] x, float[N, P, 4] past) => (float[N, Q, 4] present)",
        JOINED,
        {},
        StateChoice(8),
        "one dimension of past of model .* grows, and 2 are open: N, P; give --input_dimensions for all others",
    ),
    "no dimension that is open": (
        "(float[1, 1, 4] x, float[1, 6, 4] past) => (float[1, 7, 4] present)",
        JOINED,
        {},
        StateChoice(8),
        "and none is open",
    ),
    "a capacity without room": (
        f"({INPUTS}) => (float[1, Q, 4] present)",
        JOINED,
        {},
        StateChoice(1),
        "--state_capacity 1: a step of model .* adds 1 rows; take more",
    ),
    "no capacity": (
        f"({INPUTS}) => (float[1, Q, 4] present)",
        JOINED,
        {},
        StateChoice(0),
        "a dimension of model .* grows; give --state_capacity",
    ),
    "a capacity of what does not grow": (
        "(float[1, 4] h) => (float[1, 4] hn)",
        "hn = Tanh (h)",
        {},
        StateChoice(4, (("h", "hn"),)),
        "--state_capacity 4: nothing of the state of model .* grows; drop it",
    ),
    "a pair of two shapes": (
        "(float[1, 4] h) => (float[4, 1] hn)",
        "hn = Transpose (h)",
        {},
        StateChoice(0, (("h", "hn"),)),
        "input 'h' of model .* is float32 of \\(1, 4\\), and output 'hn' float32 of \\(4, 1\\); they must be the same",
    ),
    "a dimension that depends on data": (
        f"({INPUTS}, int64[3] size) => (float[1, Q, 4] present, float[1, R, 4] y)",
        f"{JOINED} y = Expand (x, size)",
        {},
        StateChoice(8),
        "Expand node .* is not supported: the shape of its output 'y' depends on 'size'",
    ),
    "other nodes at other lengths": (
        f"({INPUTS}) => (float[1, Q, 4] present, float[1, 1, 4] y)",
        f"{JOINED} s = Shape (past) l = Gather (s, one) c = Less (l, three) y = If (c) <then_branch = a () => (float "
        "t) { t = Neg (x) }, else_branch = b () => (float e) { e = Abs (x) }>",
        {"one": np.array(1), "three": np.array(3)},
        StateChoice(8),
        "has Abs node .* with a past of 7 rows, and Neg node .* in its place with 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_have_a_state_is_refused_by_name(name: str, tmp_path: Path) -> None:
    signature, body, weights, choice, message = REFUSED[name]
    path = tmp_path / "model.onnx"
    model = build(signature, body, weights, opset=11)
    onnx.save(model, path)
    with pytest.raises(GputuneError, match=message) as raised:
        with_state(Stateful(load(path), path, {}, {}, choice))
    assert "\n" not in raised.value.message
