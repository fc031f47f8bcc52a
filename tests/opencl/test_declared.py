"""Test that families declare of their kernels what the driver finds in their texts."""

import math
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from gputune.core.dtypes import ELEMENT_TYPES
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Launch, Stage
from tests.kernels.drawing import drawn
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.opencl.conftest import KernelBench

GLOBAL = cl.kernel_arg_address_qualifier.GLOBAL
DRAWN = 10
CONST = cl.kernel_arg_type_qualifier.CONST


@pytest.mark.parametrize("op", ONE_OF_EACH)
def test_arguments_are_what_the_driver_finds(op: str, bench: KernelBench) -> None:
    family, problem = family_of(op), ONE_OF_EACH[op]
    tried = [family.default(problem, bench.limits), *drawn(family, problem, bench.limits, DRAWN)[:1]]
    instances = [family.render(problem, one) for one in tried]
    specs = (*family.inputs(problem), family.output(problem))
    types = {spec.name: ELEMENT_TYPES[spec.dtype].storage for spec in specs}
    for launch in [launch for instance in instances for launch in (*instance.prepare, instance.main)]:
        program = bench.backend.build(launch.source, f"{launch.options} -cl-kernel-arg-info")
        for kernel in launch.sequence:
            check(kernel, cl.Kernel(program.handle, kernel.entry), types)


def check(kernel: Launch | Stage, built: cl.Kernel, types: dict[str, str]) -> None:
    """Compare the arguments of a kernel with what the driver knows of them. types: of elements, by a buffer's name."""
    assert built.num_args == len(kernel.arguments)
    if math.prod(needed := required(built)):
        assert tuple(needed[: len(kernel.local_size)]) == kernel.local_size
    for place, argument in enumerate(kernel.arguments):
        kind = built.get_arg_info(place, cl.kernel_arg_info.TYPE_NAME)
        if isinstance(argument, int):
            assert kind == "int", f"{kernel.entry}, argument {place}: {kind}"
            continue
        assert built.get_arg_info(place, cl.kernel_arg_info.ADDRESS_QUALIFIER) == GLOBAL
        qualifier: Any = built.get_arg_info(place, cl.kernel_arg_info.TYPE_QUALIFIER)
        constant = bool(qualifier & CONST)
        assert kernel.writes is not None and constant == (argument not in kernel.writes), f"{kernel.entry}, {argument}"
        if argument in types:
            assert kind == f"{types[argument]}*", f"{kernel.entry}, {argument}: {kind}"


def required(built: cl.Kernel) -> Any:
    """Return the work-group that a kernel's text requires; zeros where it requires none."""
    (device,) = built.context.devices
    return np.array(built.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, device)).tolist()
