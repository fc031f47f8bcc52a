"""Declare what a kernel family is, and what it renders for one configuration of one problem.

A family is two neighbours in ops/ with one stem, such as softmax.py and softmax_rows.cl; the catalogue finds every
module there that defines FAMILY. Most families are a `MapFamily` (indexing/maps.py): one template with one kernel, of
which they declare what is their own. Others share more: work-items that share rows (indexing/rows.py), loops over
broadcast inputs (indexing/broadcasting.py), pixels of maps (indexing/pixel_strips.py). docs/contributing/add_an_op.md
shows the smallest one line by line. You make a family in these steps:

1. The problem, a frozen dataclass, is the whole identity of a task: sizes, attributes, epilogue. A `Problem` names the
   types of elements that its kernels know, in `types`. Its `check` refuses meaningless values with one ValueError.
2. `inputs` and `output` name the tensors in device layout (NHWC for maps); constant tensors are marked.
3. `space` declares parameters, each with its meaning, and constraints, each with a reason that is the error message.
   Names follow the literature: VW vector width, MR rows of a register tile, LM and LN work-group.
4. `default` is valid on any device and is measured first; `guesses` won elsewhere, cut to the problem. A `TiledFamily`
   takes all three from a tiling that it shares with other families. On a CPU the default follows the shape: `pays`
   fuses where that is expected to be faster, and Winograd.gain chooses an algorithm. Elsewhere nothing is known of
   fusing that holds for all devices, so defaults are unfused. `estimate` orders configurations of a family that has one
   (tiling/estimate.py), and a default of several algorithms is the one with the least (algorithms.py).
5. `render` turns a configuration into launches. The source is the epilogue's macros (Chain.prelude) and the template,
   the same for every configuration of one template; sizes and parameters are -D integers. Weights are packed once,
   under `prepare`. Each kernel declares the buffers that it writes and what it needs of a device: ALONE if its
   work-items share nothing; a `Declared` (tiling/streaming.py) if that depends on the configuration. A family whose
   kernels need a feature in some configurations names it in Declared.asks. Devices are asked for no other features.
6. `reference` is numpy in float64 by another way than the kernel's; tests compare it with onnxruntime.
7. `work` and `tolerance` say what the task costs at least, and how far a right result may be off.

A new template of an existing family needs a .cl file, values of the parameter that selects it, constraints with
reasons, guesses for CPUs and GPUs, and a branch in `render`. The family's tests run it as soon as the space has it.

A template begins with its formula, a picture of the tile, the division of work and its preconditions, and it compiles
alone with its defaults. Accumulators are private arrays in loops with opencl_unroll_hint, which compilers turn into
registers. A return or continue inside such a loop keeps some compilers from unrolling it, so conditions guard the
borders. Only the kernel asks for its place in the grid and hands it on, so that it can be a part of a persistent
kernel. Elements of tensors are read and written by the macros of elements.cl and vectors.cl, which know their type;
`template` takes it from the problem. A kernel takes its local memory by LOCAL and LOCAL_POOL, so that another kernel
can declare it (offset_arguments.py). On CPUs memory is aligned to its elements only, because an input may be an
application's array, so templates have no pointers to vectors in global memory. `rendered` puts them into texts for
other devices: `render` declares Launch.aligned if all vectors are aligned (pointers.py). Kernels of op packages may
have pointers to vectors: they get aligned memory.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

# records that all programs share; families and op packages take them from here
from gputune.core.dtypes import ELEMENT_TYPES, FLOAT, FLOATS, ElementType, check_types
from gputune.core.launches import ALONE as ALONE
from gputune.core.launches import STANDARDS, ArgumentForm, Standard, Variant
from gputune.core.launches import Launch as Launch
from gputune.core.launches import Needs as Needs
from gputune.core.launches import Stage as Stage
from gputune.core.launches import Work as Work
from gputune.kernels.chain import EMPTY, Chain
from gputune.kernels.hard_values import PRODUCTS, UNKNOWN, Survival, hard_values
from gputune.kernels.offset_arguments import with_offsets
from gputune.kernels.pointers import by_pointers
from gputune.kernels.space import Configuration, TuningSpace, configuration_key

Array = npt.NDArray[Any]


REGISTERS = "REGS"
"""The parameter that bounds the registers of a work-item, where a driver can be told; 0 for no bound."""


@dataclass(frozen=True)
class DeviceLimits:
    """What a device allows; constraints of a space are written against it.

    The first four say how much there is room for. Rules about them are DeviceLimits of a space, and no parameter's
    values depend on them, so that they decide what can run and not what a measurement belongs to. `standard` is the
    latest OpenCL C that it compiles, `features` are those that it has proven of those for which a space asks,
    `argument_form` is how its launches are given what lies in arenas. `family` is a GPU's as core/tier.py knows it, and
    `launch_ns` what a launch was measured to cost on it, 0 where that is not known; both are for estimates.
    `register_cap` is the driver's build option, before a number, that bounds the registers of a work-item.
    """

    max_work_group_size: int
    max_work_item_sizes: tuple[int, int, int]
    local_memory_bytes: int
    max_allocation_bytes: int
    compute_units: int
    device_type: str
    preferred_float_width: int
    standard: Standard = "CL1.2"
    extensions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    argument_form: ArgumentForm = "sub_buffers"
    family: str = ""
    launch_ns: float = 0
    register_cap: str = ""

    def lack(self, needs: Needs) -> str:
        """Return what a kernel needs and the device does not have, in words; empty if it has everything."""
        if needs.local_bytes > self.local_memory_bytes:
            return f"{needs.local_bytes} of the device's {self.local_memory_bytes} bytes of local memory"
        if STANDARDS.index(needs.standard) > STANDARDS.index(self.standard):
            return f"OpenCL C {needs.standard[2:]}, the device compiles {self.standard[2:]}"
        if missing := sorted({*needs.extensions} - self.extensions):
            return f"{', '.join(missing)}, which the driver does not offer"
        missing = sorted({*needs.features} - self.features)
        return f"{', '.join(missing)}, which the device has not proven" if missing else ""

    @property
    def unbounded(self) -> "DeviceLimits":
        """A device of the same kind with room for everything: what depends on this alone is the same in every process
        of a machine."""
        most = 2**63 - 1
        return dataclasses.replace(
            self,
            max_work_group_size=most,
            max_work_item_sizes=(most, most, most),
            local_memory_bytes=most,
            max_allocation_bytes=most,
            launch_ns=0,
        )


Estimate = Callable[[Configuration], float]
"""About how many clocks a device takes for a configuration; the numbers only say which is faster."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor as it lies on the device; `constant` ones are known at generation time."""

    name: str
    shape: tuple[int, ...]
    constant: bool = False
    dtype: str = FLOAT

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ELEMENT_TYPES[self.dtype].nbytes


def operand_specs(chain: Chain, shape: tuple[int, ...], dtype: str = FLOAT) -> tuple[TensorSpec, ...]:
    """Return the operands of an epilogue, shaped as the output or one number for each of its channels."""
    shapes = dict(enumerate([shape] * chain.operands)) | {k: (size,) for k, size in chain.operand_channels.items()}
    return tuple(TensorSpec(name, shapes[k], dtype=dtype) for k, name in enumerate(chain.operand_names))


@dataclass(frozen=True)
class Instance:
    """A configuration made concrete.

    `prepare` rearranges constant inputs into the buffers of `packed` (name -> bytes); it runs once, untimed, and at
    finalize time on the device. `main` reads activations and packed buffers and writes the buffer "output"; its stages
    hand over what they compute in the buffers of `scratch` (name -> bytes), whose contents nothing keeps.
    """

    main: Launch
    prepare: tuple[Launch, ...] = ()
    packed: Mapping[str, int] = field(default_factory=dict)
    scratch: Mapping[str, int] = field(default_factory=dict)

    def variant(self, configuration: Configuration, number: int = 0) -> Variant:
        """Return it as the variant that the configuration was rendered to; number: in a request for several."""
        return Variant(configuration, **vars(self), number=number)


class Problem:
    """Check once what all problems must keep. A subclass is a frozen dataclass with a field `dtype`.

    `op` is its family's, for messages. `types` are those that its kernels read and write: the one place that names
    them. A problem with an `epilogue` computes with floats in any case.
    """

    op: ClassVar[str]
    types: ClassVar[tuple[str, ...]] = FLOATS
    epilogue: Chain = EMPTY
    dtype: str

    def __post_init__(self) -> None:
        check_types(self.op, (self.dtype,), self.types)
        if self.epilogue.steps:
            check_types(f"{self.op} with an epilogue", (self.dtype,), FLOATS)
        self.check()

    def check(self) -> None:
        """Raise a ValueError for values without a meaning."""

    @property
    def element(self) -> ElementType:
        """Return the record of the type of its elements."""
        return ELEMENT_TYPES[self.dtype]

    def tensor(self, name: str, shape: tuple[int, ...], constant: bool = False) -> TensorSpec:
        """Return a tensor of its elements."""
        return TensorSpec(name, shape, constant, self.dtype)

    def operands(self, shape: tuple[int, ...]) -> tuple[TensorSpec, ...]:
        """Return the operands of its epilogue, shaped as the output."""
        return operand_specs(self.epilogue, shape, self.dtype)


ROUNDINGS = 4
"""How often a result may have been rounded to its type: when it is stored, and what it is computed from."""


@dataclass(frozen=True)
class Tolerance:
    """A result is right when |got - want| <= absolute + relative * max|want| everywhere."""

    relative: float
    absolute: float

    @classmethod
    def of(cls, dtype: str, relative: float, absolute: float) -> "Tolerance":
        """Return what is enough for float32, and no less than ROUNDINGS to the type."""
        return cls(max(relative, ROUNDINGS * ELEMENT_TYPES[dtype].resolution), absolute)


class KernelFamily(ABC):
    """One op: its problems, its variants, and an independent reference.

    `op` is the task's op name; its problem is a frozen dataclass that is the whole identity of a task.
    """

    op: ClassVar[str]
    heavy: ClassVar[bool] = False
    """Whether its time is arithmetic; tuning measures more configurations then."""
    floats: ClassVar[tuple[str, ...]] = (FLOAT,)
    """The types of floats that its problems may have. Plans that store other floats convert them for it. With FLOATS,
    its problems have a `dtype`, and it renders `template(NAME, dtype=problem.dtype)`."""
    survives: ClassVar[Survival] = UNKNOWN
    """Which hard values go among its random inputs; `survival` where that depends on the problem."""

    @abstractmethod
    def inputs(self, problem: Any) -> tuple[TensorSpec, ...]:
        """Return the inputs in device layout, named as `render` and `reference` know them."""

    @abstractmethod
    def output(self, problem: Any) -> TensorSpec:
        """Return the one result, named "output"."""

    @abstractmethod
    def space(self, problem: Any, limits: DeviceLimits) -> TuningSpace:
        """Return the configurations that are legal for this problem on this device."""

    @abstractmethod
    def default(self, problem: Any, limits: DeviceLimits) -> dict[str, int]:
        """Return a configuration that is valid on the device, as good as shape and limits tell; measured first and kept
        on a tie."""

    def pays(self, problem: Any, limits: DeviceLimits) -> bool:
        """Of a family that computes what several others could: whether its default is expected to be faster than
        theirs. Where nothing is known it is not."""
        return False

    def guesses(self, problem: Any, limits: DeviceLimits) -> Iterable[dict[str, int]]:
        """Return configurations that may be fast, the best guess first; they need not be legal, nor differ from each
        other."""
        return ()

    def starters(self, problem: Any, limits: DeviceLimits) -> list[dict[str, int]]:
        """Return valid configurations worth measuring before any search, best guess first, the default not among
        them."""
        default, space = self.default(problem, limits), self.space(problem, limits)
        different = {configuration_key(one): one for one in self.guesses(problem, limits)}.values()
        return [one for one in different if one != default and not space.violations(one)]

    def estimate(self, problem: Any, limits: DeviceLimits) -> Estimate | None:
        """Return what estimates how many clocks a device takes for a valid configuration, as far as one tells from
        sizes, so that a search knows where to begin; None if nothing is known."""
        return None

    @abstractmethod
    def render(self, problem: Any, configuration: Configuration) -> Instance:
        """Return the launches of a valid configuration; sizes become literals through build options."""

    def rendered(self, problem: Any, configuration: Configuration, limits: DeviceLimits) -> Instance:
        """Render a configuration for a device: other devices than CPUs access aligned vectors by pointers, kernels are
        given their buffers in the device's form, and a bound for registers is an option of its driver."""
        instance = self.render(problem, configuration)
        main = instance.main if limits.device_type == "cpu" else by_pointers(instance.main)
        if limits.argument_form == "offsets":
            main = with_offsets(main)
        if cap := configuration.get(REGISTERS):
            main = dataclasses.replace(main, options=f"{main.options} {limits.register_cap}{cap}")
        return dataclasses.replace(instance, main=main)

    @abstractmethod
    def reference(self, problem: Any, inputs: Mapping[str, Array]) -> Array:
        """Return the right answer in numpy, in the output's device layout, by another way than the kernel's."""

    def of_floats(self, problem: Any, dtype: str) -> Any:
        """Return the same problem on another type of floats; problems on other types stay as they are."""
        return dataclasses.replace(problem, dtype=dtype) if problem.dtype in FLOATS else problem

    def computing(self, problem: Any, dtype: str) -> Any:
        """Return the same problem whose products may be multiplied in a type, if the family has such kernels."""
        return problem

    def reading(self, problem: Any, types: Mapping[str, str]) -> Any:
        """Return the same problem with inputs of other types of floats, as far as the family has kernels that read
        them. types: of inputs, by name."""
        return problem

    def sample_inputs(self, problem: Any, generator: np.random.Generator) -> dict[str, Array]:
        """Random inputs of a problem for which its reference is finite and far from overflowing, but for hard values.

        Whole numbers are small, and bools both. All else is normal numbers, weights divided by the root of their fan-
        in so that sums keep unit variance. Where the chain has a domain (sqrt, log, division by a tensor) everything
        is drawn from [0.5, 1.5], weights divided by their fan-in so that sums stay positive and around one;
        activations, biases and operands are multiplied with the factors that the chain wants. Among the floats of the
        first input that has any are a few values that the op must survive (hard_values.py). Where a chain says that it
        is of whole numbers, all but its operands are, and their sums of products are below 2 ** 24.
        """
        whole = any(isinstance(value, Chain) and value.of_whole for value in vars(problem).values())
        chains = [value for value in vars(problem).values() if isinstance(value, Chain) and value.has_domain]
        factors = chains[0].factors() if chains else ()
        inputs = {}
        for spec in self.inputs(problem):
            operand = spec.name.removeprefix("operand") if spec.name.startswith("operand") else ""
            weight = spec.constant and len(spec.shape) > 1 and not operand
            fan_in = math.prod(spec.shape[1:]) if len(spec.shape) == 4 else spec.shape[0] if weight else 1
            if not ELEMENT_TYPES[spec.dtype].is_float:
                values = _whole(spec, generator)
            elif whole and not operand:
                most = max(1, min(127, 2**23 // (255 * fan_in))) if weight else 255
                values = generator.integers(-most, most, spec.shape, endpoint=True).astype(spec.dtype)
            elif factors:
                values = generator.uniform(0.5, 1.5, spec.shape).astype(spec.dtype)
                values *= 1 / fan_in if weight else factors[1 + int(operand)] if operand else factors[0]
            else:
                values = generator.standard_normal(spec.shape, dtype=np.float32).astype(spec.dtype, copy=False)
                values *= fan_in**-0.5 if weight else 1
            inputs[spec.name] = values
        floats = (spec for spec in self.inputs(problem) if ELEMENT_TYPES[spec.dtype].is_float and not spec.constant)
        first = next((spec.name for spec in floats), "")
        if first and not whole:
            elements = min(inputs[first].size, math.prod(self.output(problem).shape))
            dtype, exact = inputs[first].dtype.name, not self.tolerance(problem).relative
            hard = hard_values(self.survival(problem), problem, elements, dtype, exact)
            inputs[first].flat[generator.choice(inputs[first].size, hard.size, replace=False)] = hard
        return inputs

    def survival(self, problem: Any) -> Survival:
        """Return the hard values that the op must survive in a problem."""
        return self.survives

    @abstractmethod
    def work(self, problem: Any) -> Work:
        """Return the work estimate of a problem."""

    def moved_bytes(self, problem: Any) -> int:
        """Bytes of all inputs and of the output, each moved once."""
        return sum(spec.nbytes for spec in (*self.inputs(problem), self.output(problem)))

    @abstractmethod
    def tolerance(self, problem: Any) -> Tolerance:
        """Return how far a right result may be from the reference, by dtype and reduction length."""


class HasSpace(Protocol):
    """How the loops of a problem are cut into work-items, whatever is computed in them."""

    def space(self, limits: DeviceLimits) -> TuningSpace:
        """As of a family."""

    def default(self, limits: DeviceLimits) -> dict[str, int]:
        """As of a family."""

    def guesses(self, limits: DeviceLimits) -> list[dict[str, int]]:
        """As of a family."""


class TiledFamily(KernelFamily):
    """A family of sums of products whose tuning space is that of its problem's tiling, which other families have as
    well."""

    floats = FLOATS
    heavy = True
    survives = PRODUCTS

    @abstractmethod
    def tiling(self, problem: Any) -> HasSpace:
        """Return the tiling of a problem's loops."""

    def space(self, problem: Any, limits: DeviceLimits) -> TuningSpace:
        return self.tiling(problem).space(limits)

    def default(self, problem: Any, limits: DeviceLimits) -> dict[str, int]:
        return self.tiling(problem).default(limits)

    def guesses(self, problem: Any, limits: DeviceLimits) -> list[dict[str, int]]:
        return self.tiling(problem).guesses(limits)


def _whole(spec: TensorSpec, generator: np.random.Generator) -> Array:
    """Small numbers, so that sums and products stay exact, among them zeros and negative ones where there are any."""
    if spec.dtype == "bool":
        return generator.integers(0, 2, spec.shape).astype(bool)
    return generator.integers(0 if spec.dtype.startswith("u") else -9, 10, spec.shape).astype(spec.dtype)


ADDED: Mapping[str, bool] = {"added": True}
"""Metadata of a field that a problem, or a part of one, did not always have: at its default it is left out of
problem_to_dict, so that what caches know of such problems is found."""


def problem_to_dict(problem: Any) -> dict[str, Any]:
    """Return a problem as plain JSON values (tuples become lists)."""
    values = {each: getattr(problem, each.name) for each in dataclasses.fields(problem)}
    return {
        each.name: _plain(value) for each, value in values.items() if each.metadata != ADDED or value != each.default
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return problem_to_dict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
