"""Test that trials say what their kernels take of a real device, each variant of its own kernels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from gputune.core.batches import Profiled
from gputune.core.launches import Launch, Stage, Variant
from gputune.core.resources import Resources, resources_in
from gputune.runtime.backends import Backend, Buffer, ProgramCache
from gputune.runtime.backends.opencl_devices import query_kernel
from tests.opencl.conftest import DRIVERS_LOCAL_BYTES
from tests.variants import measure_on, numbered

SIZE, GROUP = 256, 16
QUICK: dict[str, Any] = {"samples": 1, "sample_ns": 1_000, "warm_up_ns": 1_000}
SOURCE = """
__kernel void turned(__global const float *x, __global float *between) {
    __local float tile[TILE];
    const int i = get_local_id(0);
    tile[i] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    between[get_global_id(0)] = tile[get_local_size(0) - 1 - i];
}
__kernel void doubled(__global const float *between, __global float *output) {
    output[get_global_id(0)] = 2.0f * between[get_global_id(0)];
}
"""


def variant(tile: int) -> Variant:
    """Two kernels, of which the first has a tile of so many floats."""
    first = Stage("turned", (SIZE,), (GROUP,), ("x", "between"))
    main = Launch(SOURCE, "doubled", f"-DTILE={tile}", (SIZE,), (GROUP,), ("between", "output"), (first,))
    return Variant({"TILE": tile}, (), main, {}, {"between": 4 * SIZE})


def run(programs: ProgramCache, tiles: Sequence[int], together: bool) -> Profiled:
    backend = programs.backend
    values = np.arange(SIZE, dtype=np.float32)
    turned = values.reshape(-1, GROUP)[:, ::-1].ravel()
    buffers: dict[str, Buffer] = {"x": backend.upload(values)}
    variants, reference = numbered(map(variant, tiles)), backend.upload(2 * turned)
    measured = measure_on(programs, variants, buffers, reference, relative=1e-5, together=together, **QUICK)
    assert [trial.status for trial in measured.trials] == ["ok"] * len(tiles), measured.trials
    return measured


@pytest.mark.parametrize("together", [False, True])
def test_a_trial_has_the_local_memory_of_each_of_its_kernels(programs: ProgramCache, together: bool) -> None:
    tiles = [tile + together for tile in (32, 64, 128)]  # programs of another test are still there
    for tile, trial in zip(tiles, run(programs, tiles, together).trials, strict=True):
        first, main = resources_in(trial.measured)
        assert first.local_bytes in range(4 * tile, 4 * tile + DRIVERS_LOCAL_BYTES + 1)
        assert main.local_bytes in range(DRIVERS_LOCAL_BYTES + 1)
        if programs.backend.identity.device_type == "cpu":
            assert (first, main) == (Resources(local_bytes=4 * tile), Resources(local_bytes=0))


def test_a_driver_that_does_not_know_a_question_is_no_error(backend: Backend) -> None:
    buffers = [backend.allocate(4 * SIZE) for _ in range(2)]
    bound = backend.bind(backend.build(SOURCE, "-DTILE=16"), "doubled", (SIZE,), (GROUP,), buffers)
    assert query_kernel(backend.device_pointer, bound.kernel.int_ptr, 0x1234) is None


class Asked:
    """A compiler that writes a log like NVIDIA's when it has the option; `options` are those of all builds."""

    OPTION = "-DASKED"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
        self.options: list[str] = []
        build = cl.Program.build

        def noted(program: cl.Program, options: str) -> cl.Program:
            self.options.append(options)
            build(program, options)
            return program

        monkeypatch.setattr(backend, "_verbose", self.OPTION)
        monkeypatch.setattr(cl.Program, "build", noted)
        monkeypatch.setattr(cl.Program, "get_build_info", lambda program, device, what: self.log_of(program))

    @staticmethod
    def log_of(program: cl.Program) -> str:
        """The more registers, the later the name of a kernel comes."""
        return "\n".join(
            f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\n"
            f"ptxas info    : Function properties for {name}\n"
            f"ptxas         .     8 bytes stack frame, {place} bytes spill stores, 0 bytes spill loads\n"
            f"ptxas info    : Used {20 + place} registers, used 1 barriers, 64 bytes smem"
            for place, name in enumerate(sorted(program.kernel_names.split(";")))
        )


@pytest.mark.parametrize("together", [False, True])
def test_what_the_log_says_goes_to_the_variant_of_each_kernel(
    programs: ProgramCache, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    asked = Asked(monkeypatch, programs.backend)
    measured = run(programs, [tile + together for tile in (40, 72, 136)], together)
    assert asked.options and all(each.endswith(Asked.OPTION) for each in asked.options)
    for number, trial in enumerate(measured.trials):
        place = 2 * number if together and programs.merges else 0
        assert resources_in(trial.measured) == (
            Resources(20 + place + 1, place + 1, 8, 64),
            Resources(20 + place, place, 8, 64),
        )


def test_programs_that_are_measured_are_loaded_with_the_option(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = backend.harvest(backend.build(SOURCE, "-DTILE=16"))
    asked = Asked(monkeypatch, backend)
    program = backend.load_binary(binary)
    assert asked.options == [Asked.OPTION] and program.log


def test_a_log_that_cannot_be_read_says_nothing(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(monkeypatch, backend)

    def fails(program: cl.Program, device: cl.Device, what: int) -> str:
        raise cl.RuntimeError("get_build_info failed: OUT_OF_HOST_MEMORY")

    monkeypatch.setattr(cl.Program, "get_build_info", fails)
    assert backend.build(SOURCE, "-DTILE=16").log == ""
