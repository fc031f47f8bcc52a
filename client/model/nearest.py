"""For an operator that cannot run: the nearest form that can, as advice for people."""

from collections.abc import Mapping

from gputune.client.errors import Refusal, UnsupportedNodes
from gputune.client.model.importer import QUANTISED_OPS, SUPPORTED_OPS
from gputune.client.suggestions import near

_UNROLL = "export the model with its control flow decided: for one branch, or with the loop unrolled"
_ON_HOST = "end the model in front of it, and do this on the host with what the model returns then"
_FLOAT = "the float32 model that this one was made from"
_SEQUENCE = "export the model with tensors in place of sequences, maps and optional values"

NEAREST: Mapping[str, str] = {
    **dict.fromkeys(("If", "Loop", "Scan"), _UNROLL),
    **dict.fromkeys(("NonMaxSuppression", "NonZero", "Unique", "RoiAlign", "Multinomial"), _ON_HOST),
    **dict.fromkeys(QUANTISED_OPS, _FLOAT),
    **dict.fromkeys(("DFT", "STFT", "MelWeightMatrix"), "a Conv whose weights are the sines and cosines"),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli"),
                    "an input of the model that the host fills with random numbers"),
}  # fmt: skip
"""Advice for operators that are not supported at all. An operator that becomes supported leaves this table."""


MOST_ADVICE = 3


def line_with_advice(error: UnsupportedNodes) -> str:
    """The error, and for its operators what to use in their place, in one line. Where a model is quantised, the error
    itself says that."""
    forms = {one.op: nearest_form(one) for one in error.refusals if one.op not in QUANTISED_OPS}
    told = list(forms.items())[:MOST_ADVICE]
    one = len(forms) == 1
    parts = [str(error), *(f"instead{'' if one else f' of {op}'}: {form}" for op, form in told)]
    return "; ".join([*parts, *(["`gputune model-check` lists them all"] if len(told) < len(forms) else [])])


def nearest_form(refusal: Refusal) -> str:
    """What to use in place of a node that cannot run."""
    domain, _, name = refusal.op.rpartition(".")
    if domain:
        return f"an op package that lowers {refusal.op}, given as --op_packages"
    if name in SUPPORTED_OPS:  # used in a way that is not: the reason says which way is
        return f"{name} as the reason says, or an op package with a lowering of it"
    if name in NEAREST:
        return NEAREST[name]
    if name.startswith(("Sequence", "Optional", "String", "SplitToSequence", "Tfidf", "Map")):
        return _SEQUENCE
    similar = near(name, SUPPORTED_OPS)
    written = f"{similar}, or operators that are supported; " if similar else "operators that are supported; "
    return f"{written}or an op package that lowers {name}, given as --op_packages"
