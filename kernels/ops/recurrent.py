"""Run RNN, GRU and LSTM over whole sequences. See recurrent_steps.cl."""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from gputune.core.dtypes import ELEMENT_TYPES, FLOATS
from gputune.kernels.family import (
    Array,
    DeviceLimits,
    Instance,
    KernelFamily,
    Launch,
    Needs,
    TensorSpec,
    Tolerance,
    Work,
)
from gputune.kernels.hard_values import Survival
from gputune.kernels.indexing.cells import ACTIVATIONS, OUTPUTS, RecurrentProblem, run_cells
from gputune.kernels.indexing.ranges import QUANTISED, STEP_OF_RANGE, ZERO_POINT
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Constraint, DeviceLimit, Parameter, TuningSpace
from gputune.kernels.template import build_options, own_text, template
from gputune.kernels.tiling.packing import Packing, packed_constraints
from gputune.kernels.tiling.streaming import (
    GROUP_SIZES,
    VECTOR_WIDTHS,
    Declared,
    at_most,
    busy,
    ceil_div,
    default_width,
    local_bytes,
    power_at_least,
    power_at_most,
    round_up,
)
from gputune.kernels.tiling.workgroups import registers, registers_needed

FEW_ACCUMULATORS = 8
"""With fewer accumulators the latency of an FMA shows."""

GPU_LANES = 128


STATES = ("MB", "NV", "VW", "LANES", "LOCAL")
"""The parameters that decide the memory of the states."""


class RecurrentFamily(KernelFamily):
    """One template: a work-group goes through all steps, so that no launch and no other core lies between them."""

    op = "Recurrent"
    floats = FLOATS
    heavy = True
    survives = Survival(frozenset(), "a step feeds the next ones, so that one value decides what all outputs are")

    def inputs(self, problem: RecurrentProblem) -> tuple[TensorSpec, ...]:
        state = (problem.directions * problem.batch, problem.hidden)
        optional = (
            (
                problem.after_reset,
                problem.tensor("bias", (problem.directions, problem.hidden), constant=True),
            ),
            (problem.initial_h, problem.tensor("initial_h", state)),
            (problem.initial_c, problem.tensor("initial_c", state)),
            (problem.lengths, TensorSpec("lengths", (problem.batch,), dtype="int32")),
            (problem.peepholes, problem.tensor("peepholes", (problem.directions, 3 * problem.hidden))),
            (problem.whole, problem.tensor("scales", (problem.directions, problem.gates * problem.hidden))),
        )
        return (
            problem.tensor("gates", problem.gates_shape),
            TensorSpec("weight", problem.weight_shape, True, _weight_type(problem)),
            *(spec for there, spec in optional if there),
        )

    def output(self, problem: RecurrentProblem) -> TensorSpec:
        return problem.tensor("output", (problem.elements,))

    def space(self, problem: RecurrentProblem, limits: DeviceLimits) -> TuningSpace:
        most, group = registers(limits)[0], limits.max_work_group_size
        allocation = limits.max_allocation_bytes
        return TuningSpace(
            (
                Parameter("MB", (1, 2, 3, 4, 6, 8, 12, 16), "entries of the batch in a work-group"),
                Parameter("NV", (1, 2, 4, 8), "vectors of a work-item in a panel"),
                Parameter("VW", VECTOR_WIDTHS, "elements of a vector"),
                Parameter("LANES", GROUP_SIZES, "work-items of a work-group", of_group=True),
                Parameter("LOCAL", (0, 1), "1: states lie in local memory, 0: in global memory"),
            ),
            (
                busy(("MB",), problem.batch, "the batch"),
                busy(("VW",), problem.hidden, "the elements of a state"),
                busy(("VW", "NV"), problem.hidden, "the elements of a state"),
                busy(("VW", "NV", "LANES"), problem.hidden, "the elements of a state"),
                at_most(("LANES",), min(group, limits.max_work_item_sizes[0]), f"{group} work-items per work-group"),
                Constraint(
                    ("MB", "NV", "VW"),
                    lambda rows, vectors, width: (
                        registers_needed(rows * vectors * problem.gates, width, limits) <= most
                    ),
                    "the gates of MB*NV vectors must fit the registers",
                ),
                _needs(problem).limit(limits),
                DeviceLimit(
                    STATES,
                    lambda *values: values[-1] == 1 or _all_state_bytes(problem, *values[:-1]) <= allocation,
                    f"without LOCAL all states must fit the device's largest allocation of {allocation} bytes",
                ),
                *packed_constraints(partial(_packing, problem), limits, ("NV", "VW", "LANES")),
            ),
        )

    def default(self, problem: RecurrentProblem, limits: DeviceLimits) -> dict[str, int]:
        space = self.space(problem, limits)
        wanted = self._cpu_guess(problem, limits) if limits.device_type == "cpu" else self._gpu_guess(problem, limits)
        for local in (1, 0):
            if not space.violations(wanted | {"LOCAL": local}):
                return wanted | {"LOCAL": local}
        return space.first()

    def _cpu_guess(self, problem: RecurrentProblem, limits: DeviceLimits) -> dict[str, int]:
        """Choose one work-item a group, a tile of the batch that leaves work for every core, and enough
        accumulators."""
        width = default_width(limits, power_at_least(problem.hidden))
        share = problem.batch * problem.directions // limits.compute_units
        rows = power_at_most(min(max(share, 1), 4))
        vectors = 1
        while 2 * vectors * rows * problem.gates <= FEW_ACCUMULATORS and 2 * vectors * width < 2 * problem.hidden:
            vectors *= 2
        return {"MB": rows, "NV": vectors, "VW": width, "LANES": 1}

    def _gpu_guess(self, problem: RecurrentProblem, limits: DeviceLimits) -> dict[str, int]:
        """Choose a work-item for each element of the state."""
        most = min(limits.max_work_group_size, limits.max_work_item_sizes[0], GPU_LANES)
        return {"MB": 1, "NV": 1, "VW": 1, "LANES": min(power_at_most(most), power_at_least(problem.hidden))}

    def guesses(self, problem: RecurrentProblem, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        wanted = [default | {"NV": 2 * default["NV"]}, default | {"NV": 4}, default | {"VW": 8}]
        wanted += [default | {"MB": rows, "NV": 1} for rows in (1, 2, 6)]
        if limits.device_type != "cpu":
            wanted += [default | {"VW": 1, "LANES": lanes} for lanes in (32, 64, 256)]
            wanted += [default | {"VW": 4, "LANES": 32}]
        return wanted

    def render(self, problem: RecurrentProblem, configuration: Configuration) -> Instance:
        panel = [configuration[name] for name in ("NV", "VW", "LANES")]
        rows, lanes = configuration["MB"], configuration["LANES"]
        packing = _packing(problem, *panel)
        scratch = {} if configuration["LOCAL"] else {"states": _all_state_bytes(problem, rows, *panel)}
        optional = [spec.name for spec in self.inputs(problem) if spec.name not in ("gates", "weight", "bias")]
        main = Launch(
            source=_prelude(problem) + _text(problem),
            entry="recurrent_steps",
            needs=_needs(problem).of(configuration),
            writes=("output", *scratch),
            aligned=aligned(configuration["VW"], problem.hidden),
            options=build_options(_macros(problem) | _renamed(configuration)),
            global_size=(lanes, _groups(problem, rows)),
            local_size=(lanes, 1),
            arguments=("gates", "packed", "output", *scratch, *optional),
        )
        return Instance(main, (packing.launch("weight", problem.after_reset),), {"packed": packing.nbytes}, scratch)

    def reference(self, problem: RecurrentProblem, inputs: Mapping[str, Array]) -> Array:
        results = run_cells(problem, inputs)
        return np.concatenate([results[name].ravel() for name in problem.outputs]).astype(problem.dtype)

    def work(self, problem: RecurrentProblem) -> Work:
        cells = problem.steps * problem.batch * problem.directions * problem.hidden
        return Work(cells * problem.gates * (2 * problem.hidden + 4), self.moved_bytes(problem))

    def tolerance(self, problem: RecurrentProblem) -> Tolerance:
        # Of a state that is quantised, an element all but halfway between two steps may take the other one.
        absolute = 0.02 / math.sqrt(problem.hidden) if problem.whole else 1e-5
        return Tolerance.of(problem.dtype, relative=1e-5 + 4e-6 * math.sqrt(problem.hidden), absolute=absolute)

    def sample_inputs(self, problem: RecurrentProblem, generator: np.random.Generator) -> dict[str, Array]:
        inputs = super().sample_inputs(problem, generator)
        if problem.whole:
            most = 127 if problem.bytes else 255
            numbers = generator.integers(-most, most, problem.weight_shape, endpoint=True)
            inputs["weight"] = numbers.astype(_weight_type(problem))
            scales = generator.uniform(0.5, 1, inputs["scales"].shape) / (255 * math.sqrt(problem.hidden))
            inputs["scales"] = scales.astype(problem.dtype)
        return inputs


def _packing(problem: RecurrentProblem, vectors: int, width: int, lanes: int) -> Packing:
    return Packing(
        outputs=problem.hidden,
        inputs=problem.gates,
        panel=vectors * width * lanes,
        output_stride=problem.gates * problem.hidden,
        input_stride=problem.hidden,
        groups=problem.directions,
        taps=problem.hidden,
        dtype=_weight_type(problem),
    )


def _weight_type(problem: RecurrentProblem) -> str:
    return "int8" if problem.bytes else problem.dtype


def _text(problem: RecurrentProblem) -> str:
    """Return the template; for weights of bytes with the text that reads vectors of them."""
    text = template("recurrent_steps.cl", dtype=problem.dtype)
    if not problem.bytes:
        return text
    vectors = own_text("vectors.cl")
    return text.replace(vectors, vectors + template("numbers.cl")).replace(_LOADED, _LOADED_BYTES)


_LOADED, _LOADED_BYTES = "LOAD(weights, ", "NUMBERS(packed, (int)(weights - packed) + "
"""How the template reads packed weights, and reads them where they are bytes."""


def _state_bytes(problem: RecurrentProblem, rows: int, vectors: int, width: int, lanes: int) -> int:
    """Return what a work-group keeps from step to step: h twice, and c or, of a GRU in two phases, r h. Of whole
    numbers it has the whole batch, and both ends of the range that each work-item found."""
    states = 3 if problem.cell == "LSTM" or (problem.cell == "GRU" and not problem.after_reset) else 2
    entries = round_up(problem.batch, rows) if problem.whole else rows
    ends = 2 * lanes if problem.whole and lanes > 1 else 0
    elements = states * entries * round_up(problem.hidden, vectors * width * lanes) + ends
    return ELEMENT_TYPES[problem.dtype].sum_bytes * elements


def _needs(problem: RecurrentProblem) -> Declared:
    def needs(rows: int, vectors: int, width: int, lanes: int, local: int) -> Needs:
        states = _state_bytes(problem, rows, vectors, width, lanes)
        return Needs(local_bytes(states) if local else 0, cooperates=lanes > 1)

    return Declared(STATES, needs, "with LOCAL the states")


def _groups(problem: RecurrentProblem, rows: int) -> int:
    return problem.directions * (1 if problem.whole else ceil_div(problem.batch, rows))


def _all_state_bytes(problem: RecurrentProblem, rows: int, vectors: int, width: int, lanes: int) -> int:
    return _groups(problem, rows) * _state_bytes(problem, rows, vectors, width, lanes)


def _macros(problem: RecurrentProblem) -> dict[str, int]:
    places = problem.places
    return {
        "GATES": problem.gates,
        "STEPS": problem.steps,
        "BATCH": problem.batch,
        "HIDDEN": problem.hidden,
        "DIRECTIONS": problem.directions,
        "FORWARDS": int(problem.direction != "reverse"),
        "BATCH_FIRST": int(problem.batch_first),
        "AFTER_RESET": int(problem.after_reset),
        "COUPLED": int(problem.coupled),
        "PEEPHOLES": int(problem.peepholes),
        "INITIAL_H": int(problem.initial_h),
        "INITIAL_C": int(problem.initial_c),
        "LENGTHS": int(problem.lengths),
        "WHOLE": int(problem.whole),
        **{f"{name.removeprefix('Y_').upper()}_AT": places[name][0] if name in places else -1 for name in OUTPUTS},
    }


def _renamed(configuration: Configuration) -> dict[str, int]:
    """Return the parameters as macros; templates declare local memory by a macro of the name LOCAL."""
    return {"IN_LOCAL" if name == "LOCAL" else name: value for name, value in configuration.items()}


def _prelude(problem: RecurrentProblem) -> str:
    """Return the macros F, G and H: statements that update a vector, of the direction where the two differ; and those
    that quantise."""
    count = ACTIVATIONS[problem.cell]
    macros = []
    for number, name in enumerate("FGH"[:count]):
        forth, *back = (chain.source("(value)", (), "vec") for chain in problem.activations[number::count])
        body = forth if not back or back == [forth] else f"if (direction == 0) {{ {forth} }} else {{ {back[0]} }}"
        macros.append(f"#define {name}(value, direction) {{ {body} }}\n")
    if problem.whole:
        macros += [f"#define {head} {{ {body} }}\n" for head, body in _QUANTISING.items()]
    return "".join(macros)


_QUANTISING = {
    "STEP_OF_RANGE(range)": STEP_OF_RANGE.source("(range)", (), "SUM"),
    "ZERO_POINT(value, step)": ZERO_POINT.source("(value)", ("(step)",), "SUM"),
    "QUANTISED(value, step, top)": QUANTISED.source("(value)", ("(step)", "(top)"), "vec"),
}


FAMILY = RecurrentFamily()
