"""Provide the bench in two forms: texts of kernels are checked without the time that optimisers take."""

import pytest

from gputune.client.tuning.search.task_search import device_limits
from gputune.runtime.backends import ProgramCache
from tests.opencl.conftest import KernelBench
from tests.opencl.declared import ARGUMENT_INFO

UNOPTIMISED = "-cl-opt-disable"
"""For drivers that take their time for each program: four fifths of it are the optimiser's."""


@pytest.fixture(scope="session", params=["quick", pytest.param("optimised", marks=pytest.mark.night)])
def bench(request: pytest.FixtureRequest, programs: ProgramCache) -> KernelBench:
    """What a text computes shows in unoptimised code, too; `shipped` is the bench for optimised code in every run."""
    options = f"{ARGUMENT_INFO} {UNOPTIMISED if request.param == 'quick' and programs.merges else ''}".rstrip()
    return KernelBench(programs, device_limits(programs.backend.identity), options)


@pytest.fixture(scope="session")
def shipped(programs: ProgramCache) -> KernelBench:
    """Builds kernels as they are shipped."""
    return KernelBench(programs, device_limits(programs.backend.identity))
