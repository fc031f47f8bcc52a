"""Test memory_limit_hint: what is reduced, in which order, and what is said of it."""

import functools
from dataclasses import replace

import pytest

from gputune.client.context.choice import Decision
from gputune.client.generation.memory_limit import Fitted, fit
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Task
from gputune.client.tuning.measuring.end_to_end import EndToEnd
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.task_search import device_limits, task_key
from gputune.core.identity import DeviceIdentity
from gputune.kernels.catalogue import family_of
from gputune.kernels.space import Configuration, configuration_key
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.client import models
from tests.client.commands import Generate

assert NULL_REPORT.identity is not None
DEVICE: DeviceIdentity = NULL_REPORT.identity
LIMITS = device_limits(DEVICE)
HUGE = 10**11

Options = list[tuple[Configuration, float, float]]


@functools.cache
def options(task: Task) -> Options:
    """Configurations of a convolution with different amounts of packed weights: the more, the faster."""
    if task.op != "Conv":
        return []
    family, found = family_of(task.op), dict[int, Configuration]()
    for configuration in family.space(task.problem, LIMITS).configurations():
        found.setdefault(sum(family.render(task.problem, configuration).packed.values()), configuration)
        if len(found) == 3:
            break
    sizes = sorted(found, reverse=True)
    return [(found[size], 1e6 * (place + 1), 1e6 * (place + 1) + 1) for place, size in enumerate(sizes)]


@pytest.fixture(scope="module")
def decision(tmp_path_factory: pytest.TempPathFactory) -> Decision:
    """Two convolutions that run what is fastest, and needs most."""
    model = models.build(
        "(float[1,16,20,20] x) => (float[1,32,20,20] y)",
        """a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, v)
           y = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a, w)""",
        {"v": (32, 16, 3, 3), "w": (32, 32, 3, 3)},
    )
    plan = lower(read_model(models.save(model, tmp_path_factory.mktemp("model")), {}))
    outcomes = {}
    for task in plan.tasks:
        one = untuned(task, LIMITS)
        outcomes[one.key] = replace(one, configuration=options(task)[0][0]) if options(task) else one
    return Decision(plan, outcomes, summary={"fused": []}, end_to_end=EndToEnd(1.0, None, "untuned"))


def fitted(decision: Decision, limit: int, measured: object = options) -> Fitted:
    assert callable(measured)
    return fit([decision], limit, measured, DEVICE, "sub_buffers", 100)


def said(found: Fitted) -> str:
    nbytes = found.needed_bytes
    return f"{nbytes / 1e6:.1f} MB" if nbytes >= 1e6 else f"{nbytes:,} bytes"


def configurations(decision: Decision) -> list[str]:
    return [configuration_key(one.configuration) for one in decision.outcomes.values()]


def test_what_fits_stays_as_it_is(decision: Decision) -> None:
    found = fitted(decision, HUGE)
    assert found.met and found.changed == 0 and found.cost_ns == 0
    assert found.decisions == [decision]
    assert found.line == f"memory_limit_hint of {HUGE / 1e6:.1f} MB: arenas and weights need {said(found)}"


def test_a_lower_limit_is_respected_and_costs_no_less(decision: Decision) -> None:
    most = fitted(decision, HUGE).needed_bytes
    least = fitted(decision, 1).needed_bytes
    assert least < 0.9 * most
    costs = []
    for limit in range(most, least - 1, (least - most) // 10):
        found = fitted(decision, limit)
        assert found.met and found.needed_bytes <= limit and found.unlimited_bytes == most
        assert (found.cost_ns > 0) == (found.changed > 0) == (limit < most)
        costs.append(found.cost_ns)
    assert costs[0] == 0 < costs[-1]
    assert costs[1] <= costs[-1]


def test_what_gives_way_has_its_own_time_and_whole_contexts_say_nothing(decision: Decision) -> None:
    found = fitted(decision, fitted(decision, HUGE).needed_bytes - 1)
    (changed,) = found.decisions
    assert found.changed == 1
    ((key, one),) = [(key, one) for key, one in changed.outcomes.items() if one != decision.outcomes[key]]
    task = next(task for task in decision.plan.tasks if task_key(task).digest == key)
    known = [(configuration_key(c), median_ns) for c, _, median_ns in options(task)]
    assert (configuration_key(one.configuration), one.tuned_ns) in known[1:]
    assert changed.summary == {"fused": []} and changed.end_to_end is None
    assert found.kernels_ns == 2e6  # both run the fastest, which takes a millisecond
    assert "1 task runs another configuration, +1.00 ms (+50.0%) of kernel time" in found.line


def test_what_cannot_be_met_is_the_smallest_and_says_what_it_needs(decision: Decision) -> None:
    found = fitted(decision, 10)
    assert not found.met
    smallest = [
        configuration_key(options(task)[-1][0] if options(task) else untuned(task, LIMITS).configuration)
        for task in decision.plan.tasks
    ]
    assert configurations(found.decisions[0]) == smallest
    assert f"hint of 10 bytes is not met: the smallest context found needs {said(found)} and" in found.line


def test_nothing_is_chosen_that_was_not_measured(decision: Decision) -> None:
    found = fitted(decision, 10, lambda task: [])
    assert not found.met and found.changed == 0
    assert configurations(found.decisions[0]) == configurations(decision)


def test_graphs_share_weights_and_what_gives_way(decision: Decision) -> None:
    one = fitted(decision, HUGE)
    two = fit([decision, decision], HUGE, options, DEVICE, "sub_buffers", 100)
    assert one.needed_bytes < two.needed_bytes < 2 * one.needed_bytes
    less = fit([decision, decision], two.needed_bytes - 1, options, DEVICE, "sub_buffers", 100)
    assert less.met
    assert configurations(less.decisions[0]) == configurations(less.decisions[1])


@pytest.mark.parametrize(("effort", "limit", "met"), [("none", HUGE, True), ("none", 5, False), ("quick", 5, False)])
def test_the_generator_respects_it_and_its_summary_tells(
    generate: Generate, effort: str, limit: int, met: bool
) -> None:
    ran = generate(model=models.residual_block(), effort=effort, memory_limit_hint=limit)
    assert ran.code == 0, ran.err
    told = ran.summary["memory_limit"]
    assert (told["limit_bytes"], told["met"]) == (limit, met)
    assert told["needed_bytes"] <= told["unlimited_bytes"]
    assert ("is not met" in ran.err) is not met


def test_without_a_limit_the_summary_says_so(generate: Generate) -> None:
    assert generate().summary["memory_limit"] is None
