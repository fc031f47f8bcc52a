"""Compare what families declare of their kernels with what the driver finds in their texts."""

import math
from typing import Any

import numpy as np
import pyopencl as cl

from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.kernels.family import KernelFamily, Launch, Stage

GLOBAL = cl.kernel_arg_address_qualifier.GLOBAL
CONST = cl.kernel_arg_type_qualifier.CONST
ARGUMENT_INFO = "-cl-kernel-arg-info"
"""The option of a program of which arguments can be asked for."""


def types_of(family: KernelFamily, problem: Any) -> dict[str, str]:
    """Return the types of a problem's inputs and output of float32, by name; others may be moved as bits."""
    specs = (*family.inputs(problem), family.output(problem))
    return {each.name: ELEMENT_TYPES[FLOAT].storage for each in specs if each.dtype == FLOAT}


def check_arguments(kernel: Launch | Stage, built: cl.Kernel, types: dict[str, str]) -> None:
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
