"""List the rules that kernels are known to break, each with its reason, until a change makes the exception needless."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpu.checking.devices import PHONES
from gpu.checking.problems import SUFFIX


class Place(NamedTuple):
    """Where a rule is broken."""

    family: str
    problem: str
    kernel: str
    device: str
    rule: str


@dataclass(frozen=True)
class Known:
    """A rule that a family breaks, or a family in half. problems, kernels, devices: where; everywhere if empty."""

    family: str
    rule: str
    reason: str
    problems: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    def excuses(self, place: Place) -> bool:
        """Return whether the rule may be broken there."""
        narrowed = ((self.problems, place.problem), (self.kernels, place.kernel), (self.devices, place.device))
        here = all(not names or name in names for names, name in narrowed)
        same = self.family in (place.family, place.family.removesuffix(SUFFIX))
        return here and same and self.rule == place.rule


NVIDIA, AMD, INTEL = ("h100", "a100", "rtx3060"), ("gfx90a", "gfx1030"), ("dg2",)
BY_COLUMNS = "a right side that lies by columns is packed by elements"
TOKENS = "no vector divides the 197 tokens, so rows begin at any element"
LARGE = "tiles that others have registers for are starters on Intel's devices, too"

_STACK = (
    Known("Transpose", "no_stack", "starters hold a tile of 48 and more elements in an array", devices=NVIDIA),
    Known(
        "Attention", "no_stack", "where nothing fits local memory, scores wait in an array", kernels=("attention_rows",)
    ),
    Known("Persistent", "no_stack", "a function is given the address of how long groups have waited"),
)

_NARROW = (
    Known("Attention", "wide_accesses", "keys are turned over by elements", kernels=("pack_keys",)),
    Known("Conv", "wide_accesses", "pixels of planes are read by elements", kernels=("conv_planes",)),
    Known("ConvTranspose", "wide_accesses", "vectors at the sides of the map are stored by elements"),
    Known("InvertedResidual", "wide_accesses", "a starter with KU=1 reads a map by elements"),
    Known("LRN", "wide_accesses", "neighbours of a vector are read by elements"),
    Known("MatMul", "wide_accesses", BY_COLUMNS, kernels=("pack_right",)),
    Known("MatMul", "wide_accesses", TOKENS, problems=("vit-scores", "vit-values")),
    Known("MatMul", "wide_accesses", "elements of a few rows are read one by one", kernels=("matmul_skinny",)),
    Known("Scatter", "wide_accesses", "updates are added by elements, and only copies have vectors"),
    Known("Softmax", "wide_accesses", "tails are loops and weigh as much as the vectors before them", devices=AMD),
    Known("Softmax", "wide_accesses", TOKENS, problems=("vit-attention",), devices=NVIDIA),
    Known("Typed", "wide_accesses", "a vector of four bools is 4 bytes"),
)

_NARROW_IN_HALF = (
    *(
        Known(f"{family}{SUFFIX}", "wide_accesses", "a starter with KU=2 reads two halves of a row", kernels=(kernel,))
        for family, kernel in (
            ("Conv", "conv_direct"),
            ("MatMul", "matmul_tiled"),
        )
    ),
    Known(
        f"Conv{SUFFIX}",
        "wide_accesses",
        "two channels of a tile of 4 x 4 are as many as a work-item transforms in registers",
        kernels=("winograd_transform",),
    ),
    Known(f"Resample{SUFFIX}", "wide_accesses", "tables have places and weights of 4 bytes, whatever elements have"),
)

_IDLE = (
    *(
        known
        for rule in ("fills_device", "enough_groups")
        for known in (
            Known("Scan", rule, "a work-item goes along a row, and there are few rows"),
            Known("Recurrent", rule, "one work-group computes all steps, because they wait for each other"),
        )
    ),
    Known(
        "MatMul",
        "enough_groups",
        "a launch that adds shares takes longer than what idle units lose",
        problems=("vit-values", "minilm-values"),
        kernels=("matmul_local",),
        devices=NVIDIA,
    ),
    Known("InvertedResidual", "enough_groups", "a work-group has at least a row of the map, of which there are 28"),
    Known("Normalise", "enough_groups", "a row has one work-group, and there are 128 rows", problems=("minilm-norm",)),
)

_LITTLE = (
    Known(
        "Attention",
        "enough_arithmetic",
        "64 keys of 256 numbers do not fit local memory, and fewer are read for as many rows",
        problems=("wide-heads",),
    ),
    Known(
        "MatMul",
        "enough_arithmetic",
        "there are 16 columns, and others would not exist",
        problems=("squeezenet-squeeze",),
    ),
    Known(
        "MatMul",
        "enough_arithmetic",
        "few tokens have tiles of 4 x 4, which are loaded for few steps",
        problems=("vit-scores", "vit-values", "minilm-scores", "minilm-values"),
    ),
)

KNOWN: tuple[Known, ...] = (
    *_LITTLE,
    *_STACK,
    *_NARROW,
    *_NARROW_IN_HALF,
    *_IDLE,
    *(
        Known(family, "no_spills", LARGE, devices=INTEL)
        for family in ("Attention", "Conv", "ConvTranspose", "InvertedResidual", "MatMul")
    ),
    Known(
        "Conv",
        "no_spills",
        "a tile's pixels and where they lie take more than the 64 registers, and some wait in memory between taps",
        kernels=("conv_direct",),
        devices=("mali-g52", "mali-g57"),
    ),
)
"""The first that excuses a kernel gives the reason."""


def needless(found: Collection[Place], known: Iterable[Known] = KNOWN) -> list[Known]:
    """Return the exceptions that nothing needs any more. found: where a run over everything saw rules broken, which
    leaves phones out."""
    judged = (each for each in known if not each.devices or not {*each.devices} <= {*PHONES})
    return [each for each in judged if not any(map(each.excuses, found))]
