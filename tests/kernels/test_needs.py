"""Test that each family declares what its kernels need, and that the declarations agree with their texts."""

import math
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits, Launch, Needs
from gputune.kernels.space import Parameter, TuningSpace
from gputune.kernels.tiling.streaming import Declared
from tests.kernels.attention_problems import ATTENTIONS
from tests.kernels.batched_problems import BATCHED
from tests.kernels.drawing import drawn
from tests.kernels.inverted_residual_problems import INVERTED
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.kernels.problems import CASES, CPU, GPU
from tests.kernels.recurrent_problems import RECURRENT
from tests.kernels.separable_problems import SEPARABLE

PROBLEMS = [
    *ONE_OF_EACH.items(),
    *((op, problem) for op, _, problem in CASES),
    *(("MatMul", problem) for problem in BATCHED.values()),
    *(("InvertedResidual", problem) for problem in INVERTED.values()),
    *(("Attention", problem) for problem in ATTENTIONS.values()),
    *(("Recurrent", problem) for problem in RECURRENT.values()),
    *(("SeparableConv", problem) for problem in SEPARABLE.values()),
]
DRAWN = 25
BORDER = "@ end of a text @"
WORKS_TOGETHER = re.compile(r"\b(?:barrier|work_group_\w+|sub_group_\w+|__local|local)\b")


def preprocessed(sources: Iterable[tuple[str, str]]) -> list[str]:
    """Return what a compiler sees of each source with its options, from one process."""
    lines: list[str] = []
    for source, options in sources:
        macros = [option[2:].partition("=") for option in options.split() if option.startswith("-D")]
        lines += [*(f"#define {name} {value or 1}" for name, _, value in macros), source]
        lines += [
            f"#undef {name}" for name in {*re.findall(r"# *define +(\w+)", source), *(each[0] for each in macros)}
        ]
        lines.append(BORDER)
    command = ["cc", "-E", "-P", "-x", "c", "-undef", "-"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
    return done.stdout.split(BORDER)[:-1]


def launches(op: str, problem: Any, limits: DeviceLimits) -> list[Launch]:
    """Return what the default, the starters and drawn configurations render to."""
    family = family_of(op)
    legal = drawn(family, problem, limits, DRAWN)
    tried = [family.default(problem, limits), *family.starters(problem, limits), *legal]
    instances = [family.render(problem, one) for one in tried]
    return [launch for instance in instances for launch in (*instance.prepare, instance.main)]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C preprocessor")
@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(("op", "problem"), PROBLEMS, ids=[f"{op}-{place}" for place, (op, _) in enumerate(PROBLEMS)])
def test_a_kernel_that_cooperates_says_so(op: str, problem: Any, limits: DeviceLimits) -> None:
    every = launches(op, problem, limits)
    for launch in every:
        for kernel in launch.sequence:
            assert kernel.needs is not None and kernel.writes, kernel.entry
            assert set(kernel.writes) <= set(kernel.arguments)
            assert 0 <= kernel.needs.local_bytes <= limits.local_memory_bytes
            assert kernel.needs.cooperates or not kernel.needs.local_bytes or math.prod(kernel.local_size) == 1
    shared = [launch for launch in every if math.prod(launch.local_size) > 1]
    texts = preprocessed((launch.source, launch.options) for launch in shared)
    for launch, text in zip(shared, texts, strict=True):
        words = WORKS_TOGETHER.search(text) is not None
        assert words == any(kernel.needs.cooperates for kernel in launch.sequence if kernel.needs), launch.options


@pytest.mark.parametrize(
    ("needs", "lacks"),
    [
        (Needs(32768), ""),
        (Needs(32769), "32769 of the device's 32768 bytes of local memory"),
        (Needs(extensions=("cl_khr_fp16",)), ""),
        (Needs(extensions=("cl_khr_fp64", "cl_khr_fp16")), "cl_khr_fp64, which the driver does not offer"),
        (Needs(features=("ptx.mma",)), "ptx.mma, which the device has not proven"),
        (Needs(standard="CL3.0"), "OpenCL C 3.0, the device compiles 1.2"),
    ],
)
def test_a_device_says_what_it_lacks(needs: Needs, lacks: str) -> None:
    device = replace(GPU, local_memory_bytes=32768, extensions=frozenset(["cl_khr_fp16"]))
    assert device.lack(needs) == lacks
    assert replace(device, standard="CL3.0", features=frozenset(["ptx.mma"])).lack(Needs(standard="CL3.0")) == ""
    declared = Declared(
        ("TWICE",), lambda twice: replace(needs, local_bytes=twice * needs.local_bytes), "rows", needs.features
    )
    space = TuningSpace((Parameter("TWICE", (1,), "times"),), (declared.limit(device),))
    assert space.violations({"TWICE": 1}) == ([f"rows: the kernel needs {lacks}"] if lacks else [])
    if lacks:
        with pytest.raises(ValueError, match=re.escape("nothing can run this problem on this device: rows: the ker")):
            space.first()
    assert space.sha256 == TuningSpace(space.parameters, ()).sha256, "what a driver offers today identifies no space"
    assert space.asks == {*needs.features}


def test_a_feature_for_which_a_family_does_not_ask_is_a_defect() -> None:
    declared = Declared(
        ("TWICE",), lambda twice: Needs(features=("half",) if twice else ()), "rows", asks=("subgroups",)
    )
    space = TuningSpace((Parameter("TWICE", (0, 1), "times"),), (declared.limit(GPU),))
    assert space.violations({"TWICE": 0}) == []
    for ask in (declared.of, space.violations):
        with pytest.raises(ValueError, match="rows: the kernel needs half, for which its family does not ask"):
            ask({"TWICE": 1})


@pytest.mark.parametrize(("op", "problem"), PROBLEMS)
def test_weights_are_packed_so_that_measurements_evict_them(op: str, problem: Any) -> None:
    """Only packed buffers count as weights there. Constants that a kernel reads as they lie are few."""
    family = family_of(op)
    constants = {spec.name: spec.nbytes for spec in family.inputs(problem) if spec.constant}
    for limits in (CPU, GPU):
        for kernel in family.render(problem, family.default(problem, limits)).main.sequence:
            read = {name for name in kernel.arguments if isinstance(name, str)} & constants.keys()
            assert sum(constants[name] for name in read) < 64 << 10, kernel.entry
