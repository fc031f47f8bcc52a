"""Compare random ONNX models with onnxruntime: by the references of the lowered plan, or by whatever computes a graph.

A model has a seed. It agrees; or gputune refuses it, by an error that names what is not supported; or it differs for a
reason in differences.py; or it fails. Of a model that fails, the first node that fails alone is named.
"""

import contextlib
import itertools
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx

from gputune.client.errors import GputuneError
from gputune.client.model.graph import Array, Graph
from gputune.client.model.importer import models, read_model
from gputune.client.model.lowering import lower
from gputune.client.model.reference import evaluate
from tests.strategies.graphs import casts, functions, fused, loops, steps, weights
from tests.strategies.graphs.casts import Run
from tests.strategies.graphs.differences import difference
from tests.strategies.graphs.making import Made, Maker, session, single
from tests.strategies.graphs.nodes import DRAWS

AGREES, REFUSED, DIFFERS, FAILED = "agrees", "refused", "documented difference", "failed"
ALLOWED = 2e-4
"""Of the largest value and 1: gputune's references are float64, onnxruntime adds in float32 and any order."""
USUAL = "usual"


class RefusedWhole(Exception):
    """Say that onnxruntime computes each node of a model, but not the model."""


@dataclass(frozen=True)
class Kind:
    """Describe a kind of models. make: gives the model of a seed; wrong: says what is wrong with it; of_single_nodes:
    whether its nodes can be tried alone."""

    help: str
    make: Callable[[int], Made]
    wrong: Callable[[Made, Run], str]
    of_single_nodes: bool = True


@dataclass(frozen=True)
class Outcome:
    """Say how the model of a seed ended; `detail` says why, `node` which of its nodes fails alone."""

    seed: int
    kind: str
    detail: str = ""
    node: str = ""


def mixed(seed: int) -> Made:
    """Return a model of operators of all kinds that gputune reads, without what is odd about models."""
    for each in itertools.count(seed, 1 << 20):
        made = Maker(each, DRAWS, plain=True).make()
        with contextlib.suppress(GputuneError):
            imported(made.model, {})
            return made
    raise AssertionError


def by_references(graph: Graph, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Compute a graph by the references of its plan."""
    with np.errstate(all="ignore"):
        return evaluate(lower(graph), inputs)


def outcome_of(seed: int, compute: Run, kind: str = USUAL) -> Outcome:
    """Return how the model of a seed ends."""
    made = KINDS[kind].make(seed)
    try:
        wrong = KINDS[kind].wrong(made, compute)
    except RefusedWhole as error:
        return Outcome(seed, AGREES, f"onnxruntime refuses the whole of what it runs in parts: {error}")
    except GputuneError as error:
        return Outcome(seed, REFUSED, _general(str(error)))
    except Exception as error:  # whatever a model brings about is what is looked for
        wrong = f"{type(error).__name__}: {error}"
    if not wrong:
        return Outcome(seed, AGREES)
    node = culprit(made, compute) if KINDS[kind].of_single_nodes else None
    if node is not None and (reason := difference(node, {**made.values, **made.weights})):
        return Outcome(seed, DIFFERS, f"{node.op_type}: {reason}")
    return Outcome(seed, FAILED, f"seed {seed}: {wrong}", "" if node is None else _words(node, made))


def _outputs_differ(made: Made, compute: Run) -> str:
    """Say what is wrong with the outputs of a model. Raises RefusedWhole."""
    try:
        names = [output.name for output in made.model.graph.output]
        want = dict(zip(names, session(made.model).run(None, dict(made.inputs)), strict=True))
    except Exception as error:  # onnxruntime's errors have no class of their own
        raise RefusedWhole(str(error)) from error
    return differing(compute(imported(made.model, made.dimensions), made.inputs), want)


def imported(model: onnx.ModelProto, dimensions: Mapping[str, tuple[int, ...]]) -> Graph:
    """Return a model as gputune reads it from a file. Raises GputuneError."""
    with tempfile.TemporaryDirectory(prefix="gputune-fuzz-") as folder:
        path = Path(folder) / "random.onnx"
        path.write_bytes(model.SerializeToString())
        return read_model(path, dimensions)


def differing(got: Mapping[str, Array], want: Mapping[str, Array]) -> str:
    """Say what is wrong with outputs; return an empty text if they are right."""
    for name, value in want.items():
        mine = got[name]
        if mine.shape != value.shape or mine.dtype != value.dtype:
            return f"output {name!r} is {mine.dtype}{mine.shape} instead of {value.dtype}{value.shape}"
        if value.dtype != np.float32:
            if not np.array_equal(mine, value):
                return f"output {name!r} has {np.count_nonzero(mine != value)} other values of {value.size}"
            continue
        allowed = ALLOWED * (1 + np.abs(value).max(initial=0, where=np.isfinite(value)))
        if not np.allclose(mine, value, 0, allowed, equal_nan=True):
            with np.errstate(invalid="ignore"):
                off = np.nanmax(np.abs(mine.astype(np.float64) - value), initial=0)
            return f"output {name!r} is off by {off:.3g}, allowed {allowed:.3g}"
    return ""


def culprit(made: Made, compute: Run) -> onnx.NodeProto | None:
    """Return the first node that is wrong in a model of its own; None if nodes are only wrong together."""
    nodes, opset = [*made.model.graph.node], made.model.opset_import[0].version
    bodies = {each.name: each.node[0] for each in made.model.functions}
    for call in nodes:
        node = onnx.NodeProto()
        node.CopyFrom(bodies.get(call.op_type, call))
        del node.input[:], node.output[:]
        node.input.extend(call.input)
        node.output.extend(call.output)
        if node.op_type == "Constant":
            continue
        inputs = {name: made.values[name] for name in node.input if name in made.values}
        constants = {name: made.weights[name] for name in node.input if name in made.weights}
        model = single(node, inputs, constants, opset)
        for info, name in zip(model.graph.output, node.output, strict=True):
            info.CopyFrom(_typed(name, made.values[name]))
        want = {name: made.values[name] for name in node.output}
        try:
            if differing(compute(imported(model, {}), inputs), want):
                return node
        except GputuneError:
            continue
        except Exception:  # as in outcome_of
            return node
    return None


def _typed(name: str, value: Array) -> onnx.ValueInfoProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, value.shape)


def _words(node: onnx.NodeProto, made: Made) -> str:
    known = {**made.values, **made.weights}
    shapes = ", ".join(f"{known[name].dtype}{list(known[name].shape)}" if name else "none" for name in node.input)
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    return f"{node.op_type}-{made.model.opset_import[0].version}({shapes}) {attributes}"


def _general(message: str) -> str:
    """Return a refusal without the names of the model, so that equal ones can be counted."""
    message = re.sub(r"\S*random.onnx", "...", message)
    return re.sub(r"'[^']*'", "'...'", re.sub(r"\d+", "N", message))[:200]


def _looped_differ(made: Made, compute: Run) -> str:
    """Say what is wrong with the outputs of a model whose Ifs are computed on both sides, however much they do."""
    with patch.object(models, "MOST_OF_BRANCHES", 2):
        return _outputs_differ(made, compute)


def _steps_differ(made: Made, compute: Run) -> str:
    """Say what is wrong with the steps of a decoder with a state."""
    with tempfile.TemporaryDirectory(prefix="gputune-fuzz-") as folder:
        return steps.wrong(made, compute, lambda model: imported(model, {}), Path(folder))


def _fused_differs(made: Made, compute: Run) -> str:
    """Say what is wrong with the model that onnxruntime fuses, beside the plain one."""
    want = compute(imported(made.model, {}), made.inputs)
    return next(
        filter(None, (differing(compute(imported(fused.fused(made.model, tool), {}), made.inputs), want)
                      for tool in (False, True))),
        "",
    )  # fmt: skip


KINDS: Mapping[str, Kind] = {
    USUAL: Kind("whatever runs", lambda seed: Maker(seed, DRAWS).make(), _outputs_differ),
    "hard": Kind(
        "one to five nodes, with infinite, NaN, huge and tiny values",
        lambda seed: Maker(seed, DRAWS, hard=True).make(),
        _outputs_differ,
    ),
    "functions": Kind(
        "functions that call functions, with default attributes",
        functions.made,
        _outputs_differ,
        of_single_nodes=False,
    ),
    "casts": Kind(
        "casts among six types, compared bit by bit",
        casts.made,
        lambda made, compute: casts.wrong(made, compute, lambda model: imported(model, {})),
        of_single_nodes=False,
    ),
    "loops": Kind("Loops, Scans and Ifs in each other", loops.made, _looped_differ, of_single_nodes=False),
    "fused": Kind(
        "transformers and CNNs, fused by onnxruntime's optimisers, beside the plain model",
        fused.made,
        _fused_differs,
        of_single_nodes=False,
    ),
    "decoders": Kind("decoders with a state, step by step", steps.made, _steps_differ, of_single_nodes=False),
    "weights": Kind("products by weights of a few bits", weights.made, _outputs_differ, of_single_nodes=False),
}
