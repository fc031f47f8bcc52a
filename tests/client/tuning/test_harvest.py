"""Test that a program harvested by a target is kept for what it was compiled for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gputune.cache import PerformanceCache
from gputune.cache.programs import program_digest
from gputune.client.options.tuning import TuningOptions
from gputune.client.tuning.tuner import Tuner
from gputune.core.batches import Profiled, ProfileKernel
from gputune.kernels.ops.matmul import FAMILY
from gputune.kernels.space import Configuration, configuration_key
from gputune.server.protocol.messages import Progress
from tests.client.answering_target import QUICK, TASK, AnsweringTarget, by_width, tune, tuner


def program_of(configuration: Configuration, cache: PerformanceCache) -> bytes | None:
    """What the cache has for what a configuration launches."""
    search = tuner(AnsweringTarget(by_width), cache)._search(TASK)
    main = FAMILY.render(TASK.problem, configuration).main
    return cache.program_of(program_digest(main, search.compiler))


def test_the_winners_program_is_kept(cache: PerformanceCache) -> None:
    outcome = tune(AnsweringTarget(by_width), cache)
    assert program_of(outcome.configuration, cache) == configuration_key(outcome.configuration).encode()


def test_programs_of_several_targets_are_kept(cache: PerformanceCache) -> None:
    """Each has a connection to the cache of its own."""
    targets: list[Any] = [AnsweringTarget(by_width), AnsweringTarget(by_width)]
    (outcome,) = Tuner(targets, cache, QUICK, options=TuningOptions(strategy="random")).tune([TASK])
    assert program_of(outcome.configuration, cache) == configuration_key(outcome.configuration).encode()


def test_a_program_stays_with_the_configuration_that_the_target_has_harvested(cache: PerformanceCache) -> None:
    """Who has won by the client's reckoning may be another one."""
    harvested: list[Configuration] = []

    class Disagreeing(AnsweringTarget):
        def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
            measured = super().measure_kernel(request, on_progress)
            assert measured.best is not None
            other = (measured.best + 1) % len(request.variants)
            harvested.append(request.variants[other].configuration)
            return replace(measured, best=other, binary=configuration_key(harvested[-1]).encode())

    outcome = tune(Disagreeing(by_width), cache)
    assert outcome.configuration["VW"] == 16
    assert program_of(outcome.configuration, cache) is None
    assert program_of(harvested[-1], cache) == configuration_key(harvested[-1]).encode()
