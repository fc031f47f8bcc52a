"""Find the nearest form that can run of an operator that cannot, as advice for people."""

from collections.abc import Iterable, Mapping

from gputune.client.errors import MODEL_INPUT, Refusal, UnsupportedNodes
from gputune.client.model.importer import SUPPORTED_OPS
from gputune.client.model.importer.opening.types import NO_TENSOR, instead_of
from gputune.client.suggestions import near

_UNROLL = "export the model with its control flow decided: for one branch, or with the loop unrolled"
_ON_HOST = "end the model before it, and do the rest on the host with the outputs of that model"

NEAREST: Mapping[str, str] = {
    **dict.fromkeys(("If", "Loop", "Scan"), _UNROLL),
    **dict.fromkeys(("NonMaxSuppression", "NonZero", "Unique", "RoiAlign", "Multinomial"), _ON_HOST),
    **dict.fromkeys(("DFT", "STFT", "MelWeightMatrix"), "a Conv whose weights are the sines and cosines"),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli"),
                    "an input of the model that the host fills with random numbers"),
}  # fmt: skip
"""Advice for operators that are not supported at all. An operator that becomes supported leaves this table."""


MOST_ADVICE = 3


def line_with_advice(error: UnsupportedNodes) -> str:
    """Return the error, and what to use in place of what it refuses, in one line."""
    forms: dict[str, dict[str, None]] = {}
    for one in error.refusals:
        forms.setdefault(nearest_form(one), {})[f"the {one.label}" if one.op == MODEL_INPUT else one.op] = None
    told = list(forms.items())[:MOST_ADVICE]
    alone = len(forms) == 1
    parts = [str(error), *(f"instead{'' if alone else f' of {_names(ops)}'}: {form}" for form, ops in told)]
    parts += ["`gputune model-check` lists them all"] if len(told) < len(forms) else []
    return "; ".join([*parts, "--unsupported host lets onnxruntime run what cannot run on the device"])


def _names(ops: Iterable[str]) -> str:
    first, *more = ops
    return f"{first} and {'others' if len(more) > 1 else more[0]}" if more else first


def nearest_form(refusal: Refusal) -> str:
    """Return what to use in place of a node that cannot run."""
    if refusal.instead:
        return refusal.instead
    domain, _, name = refusal.op.rpartition(".")
    if domain:
        return f"an op package that lowers {refusal.op}, given as --op_packages"
    if name in SUPPORTED_OPS:  # used in a way that is not: the reason says which way is
        return f"{name} as the reason says, or an op package with a lowering of it"
    if name in NEAREST:
        return NEAREST[name]
    if name.startswith(("Sequence", "Optional", "String", "SplitToSequence", "Tfidf", "Map")):
        return instead_of(NO_TENSOR)
    similar = near(name, SUPPORTED_OPS)
    written = f"{similar}, or operators that are supported; " if similar else "operators that are supported; "
    return f"{written}or an op package that lowers {name}, given as --op_packages"
