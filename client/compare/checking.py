"""Check whether a context is of a model: by the digests of files, else by what both take, give and compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gputune.client.context.verifying.distance import allowed_for
from gputune.client.context.verifying.exactness import rounds_less, steps_of
from gputune.client.context.verifying.origin import Origin
from gputune.client.context.verifying.same_model import (
    check_interface,
    check_outputs,
    compare_outputs,
    constants_of,
    model_outputs,
    optimised_outputs,
)
from gputune.client.device_errors import device_errors
from gputune.client.errors import DeviceOrContextError
from gputune.core.dtypes import FLOAT, stored_in
from gputune.runtime.application.made_up_inputs import random_inputs
from gputune.runtime.executor import Executor
from gputune.runtime.loading.in_parts import ModelInParts
from gputune.runtime.loading.model import open_any


def checked(origin: Origin) -> str:
    """Return how a context belongs to a model, in words; it does. If it was not made from this very file, each of its
    graphs runs here on random inputs, and so does the model in onnxruntime.

    Raises OtherModel, VerificationError, NothingCompared; DeviceOrContextError, ConfigError if one of them cannot run.
    """
    if origin.match == "same":
        return origin.words
    told = ", ".join(_compared(origin, graph) for graph in _graphs(origin))
    less = any(map(rounds_less, origin.headers))
    return f"{origin.words}; {'it rounds less' if less else 'they compute the same'}: {told}"


def _compared(origin: Origin, graph: str | None) -> str:
    """Return how close a graph comes to the model, in words. graph: its name; None for a model in parts."""
    with _opened(origin.context, graph) as model:
        check_interface(origin, model.graph)
        if not model.computes:
            raise DeviceOrContextError(
                f"{origin.words}; {model.device.name} computes nothing, so outputs cannot be compared: choose another "
                "device with GPUTUNE_DEVICE"
            )
        of_model = origin.model, model.graph.inputs, constants_of(origin, model.graph)
        right, optimised = model_outputs(*of_model), optimised_outputs(*of_model)
        with device_errors(origin.context):
            steps, inputs = steps_of(model), model.graph.inputs

            def infer(draw: int) -> Mapping[str, Any]:
                return model.run(random_inputs(inputs, draw))

            found = compare_outputs(origin, infer, right, steps, optimised)
        mode = model.header.precision_mode if isinstance(model, Executor) else FLOAT
        check_outputs(origin, found, allowed_for(stored_in(mode)))
        error = max((one.error for one in found.values()), default=0.0)
        return f"graph {model.graph.name!r} is off by at most {error:.1e} of its outputs' largest values"


@contextmanager
def _opened(context: Path, graph: str | None) -> Iterator[Executor | ModelInParts]:
    with device_errors(context):
        found = open_any(context).load(graph=graph)
    with closing(found):
        yield found


def _graphs(origin: Origin) -> list[str | None]:
    """Return the graphs to compare: those of a model file of this name, or all; None for a model in parts."""
    with device_errors(origin.context):
        if open_any(origin.context).in_parts:
            return [None]
    header = origin.headers[0]
    named = [graph for one in header.models if one.name == origin.model.name for graph in one.graphs]
    return [*(named or [graph.name for graph in header.graphs])]
