"""Measure in which form a device's launches are best given what lies in arenas, once, and keep that in its cache.

What a launch costs the host depends on the driver: some look at every part of a buffer each time. So a network of
LAUNCHES small sums runs in each form, in turns, as contexts do (context_runner.py). Kernels are measured in the form
that ships, so it is chosen before anything is tuned.
"""

from __future__ import annotations

import hashlib
import json
import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gputune.cache import ChainRecord, PerformanceCache
from gputune.client.context.context_runner import ContextRunner
from gputune.client.errors import GputuneError
from gputune.client.model.plan import Operation, Plan, Task
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.task_search import TaskSearch, device_limits, task_key
from gputune.core.errors import ContextError
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import ARGUMENT_FORMS, ArgumentForm
from gputune.core.quirks import usual_form
from gputune.kernels.chain import Chain, Step
from gputune.kernels.family import TensorSpec
from gputune.kernels.ops.elementwise import ElementwiseProblem

log = logging.getLogger(__name__)

LAUNCHES = 32
ELEMENTS = 1024
WORTH = 1.03
"""A form is as good as the fastest form if it takes at most so many times as long. The first such form is chosen."""
IN_WORDS: Mapping[ArgumentForm, str] = {
    "sub_buffers": "sub-buffers",
    "buffers": "whole buffers",
    "svm": "pointers into shared virtual memory",
    "offsets": "whole buffers and offsets",
}
_SUM = ElementwiseProblem(
    shape=(ELEMENTS,),
    operand_shapes=((ELEMENTS,), (ELEMENTS,)),
    input_shape=(ELEMENTS,),
    chain=Chain((Step("add", operand=0), Step("add", operand=1))),
    constant_operands=(1,),
)
_TASK = Task("Elementwise", _SUM, LAUNCHES)


@dataclass(frozen=True)
class DeviceChoices:
    """What a performance cache keeps of choices that are measured once on a device.

    settings: of the target, which change times; frozen: nothing may be measured."""

    cache: PerformanceCache
    device: DeviceIdentity
    settings: Mapping[str, str]
    frozen: bool

    def record(self, *question: object) -> ChainRecord | None:
        """Return what is known of a question, which is plain JSON. Raises CacheError."""
        return self.cache.chain_of(self._digest(question))

    def keep(self, record: ChainRecord, *question: object) -> None:
        """Keep what was measured. Raises CacheError."""
        self.cache.conclude_chain(self._digest(question), record)

    def _digest(self, question: Sequence[object]) -> str:
        """Return the identity of a question on this device, with all that changes times there."""
        search = TaskSearch(_TASK, self.device, device_limits(self.device), EFFORTS["quick"], self.settings)
        return hashlib.sha256(json.dumps([*question, search.validity.digest]).encode()).hexdigest()


class FormChoice:
    """The form of a device, as its cache knows it or as it is measured."""

    QUESTION = "argument form in C"

    def __init__(self, choices: DeviceChoices) -> None:
        self._choices, self._device = choices, choices.device

    def remembered(self) -> ArgumentForm:
        """Return what the cache knows, else the device's usual form. Raises CacheError."""
        record = self._choices.record(self.QUESTION)
        known = None if record is None else record.measured.get("argument_form")
        return next((form for form in ARGUMENT_FORMS if form == known), usual_form(self._device))

    @property
    def launch_ns(self) -> float:
        """Return the ns that a launch takes in the best form, with its share of an inference; 0 if the cache does not
        know them. Raises CacheError."""
        record = self._choices.record(self.QUESTION)
        return 0 if record is None else record.launch_ns

    def chosen(self, runner: ContextRunner) -> ArgumentForm:
        """Return what the cache knows; measure it where that is nothing. The usual form stays on CPUs, which share the
        host's memory, and where nothing can be measured. Raises CacheError."""
        usual = usual_form(self._device)
        if self._device.device_type == "cpu":
            return usual
        if self._choices.frozen or self._choices.record(self.QUESTION) is not None:
            return self.remembered()
        try:
            with runner:
                times_ns = _measured(runner, self._device)
        except (GputuneError, ContextError, OSError) as error:
            log.warning(f"launches are given {IN_WORDS[usual]}, because other forms were not measured: {error}")
            return usual
        least = min(times_ns.values())
        chosen = next(form for form, taken_ns in times_ns.items() if taken_ns <= WORTH * least)
        told = ", ".join(f"{IN_WORDS[form]} {taken_ns / LAUNCHES / 1e3:.1f} us" for form, taken_ns in times_ns.items())
        log.info(f"launches are given {IN_WORDS[chosen]}; a launch takes with {told}")
        times: dict[str, float] = {str(form): taken_ns for form, taken_ns in times_ns.items()}
        record = ChainRecord({}, times, least / LAUNCHES, {"argument_form": chosen})
        self._choices.keep(record, self.QUESTION)
        return chosen


def _measured(runner: ContextRunner, device: DeviceIdentity) -> dict[ArgumentForm, float]:
    """Return the time of an inference in each form that the device can run, in ns."""
    plan, limits = _plan(), device_limits(device)
    outcomes = {task_key(_TASK).digest: untuned(_TASK, limits)}
    contexts = {}
    for form in ARGUMENT_FORMS:
        try:
            contexts[form] = runner.load(plan, outcomes, form=form)
        except GputuneError as error:
            log.info(f"launches cannot be given {IN_WORDS[form]}: {error}")
    samples = runner.inference_ns(list(contexts.values()))
    return {form: statistics.median(taken) for form, taken in zip(contexts, samples, strict=True)}


def _plan() -> Plan:
    """Return a chain of sums, each of the last two results and of a constant of its own."""
    constants = {f"w{number}": np.full(ELEMENTS, number + 1, np.float32) for number in range(LAUNCHES)}
    results = ["x", *(f"t{number}" for number in range(1, LAUNCHES)), "y"]
    operations = []
    for number in range(LAUNCHES):
        inputs = {
            "input": results[number],
            "operand0": results[max(number - 1, 0)],
            "operand1": f"w{number}",
        }
        operations.append(Operation(f"sum {number}", _TASK, inputs, results[number + 1]))
    tensors = {name: TensorSpec(name, (ELEMENTS,)) for name in results}
    tensors |= {name: TensorSpec(name, (ELEMENTS,), constant=True) for name in constants}
    return Plan("argument forms", (tensors["x"],), (tensors["y"],), tuple(operations), tensors, constants, aliases={})
