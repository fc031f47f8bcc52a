"""Time contexts in turns with each other and with onnxruntime."""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputune.client.compare.comparing import rounds_of
from gputune.client.compare.turns import Contender, Process
from gputune.client.context.verifying.distance import distance
from gputune.client.progress import SILENT
from gputune.client.tuning.measuring.intervals import Ratio, paired_ratio

PEER = "onnxruntime"


@dataclass(frozen=True)
class Turns:
    """The times of contenders that took turns, in ns, and the contenders, which are still open."""

    times: Mapping[str, Sequence[float]]
    contenders: Mapping[str, Contender]

    def ratio(self, one: str, other: str) -> Ratio:
        """Return what one takes, by what the other takes."""
        return paired_ratio(self.times[one], self.times[other])

    def off(self, name: str, wanted: Contender) -> float:
        """Return how far the outputs of a contender are from others', by their largest value."""
        got = self.contenders[name].outputs()
        return max(distance(got[output], value) for output, value in wanted.outputs().items())


@contextmanager
def in_turns(
    contexts: Mapping[str, Path],
    options: argparse.Namespace,
    model: Path | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> Iterator[Turns]:
    """Yield the turns of contexts in one process, and of onnxruntime on a model in another one, for options.seconds.

    dtypes: by the types of inputs of the contexts, others that the model has. Raises DeviceOrContextError.
    """
    with Process() as ours, Process() as theirs:
        given = {name: {"context": str(path), "device": options.device} for name, path in contexts.items()}
        contenders = {name: Contender(name, ours, "context", arguments) for name, arguments in given.items()}
        if model is not None:
            inputs = next(iter(contenders.values())).facts["inputs"]
            typed = [each | {"dtype": (dtypes or {}).get(each["dtype"], each["dtype"])} for each in inputs]
            asked: dict[str, Any] = {"model": str(model), "inputs": typed, "threads": len(os.sched_getaffinity(0))}
            contenders[PEER] = Contender(PEER, theirs, "onnxruntime", asked)
        times = rounds_of([*contenders.values()], options.seconds, SILENT, whole=True)
        yield Turns(times, contenders)
