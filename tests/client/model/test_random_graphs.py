"""Compare random models with onnxruntime, through the references of their plans; `scripts/fuzz graphs` makes more."""

from collections import Counter

import pytest

from tests.strategies.graphs.comparing import AGREES, FAILED, by_references, outcome_of

SEEDS = {
    "usual": range(260),
    "hard": range(30),
    "functions": range(20),
    "casts": range(20),
    "fused": range(20),
    "loops": range(60),
    "decoders": range(3),
    "weights": range(60),
}
"""By the kind of models. Hard ones are few, because references overflow later than onnxruntime does."""
CHUNK = 20
MOST_OTHERS = 2
"""Of a chunk: models that are refused, or differ for a reason that is known. They are others in each onnxruntime."""


@pytest.mark.parametrize(
    ("kind", "first"), [(kind, first) for kind, seeds in SEEDS.items() for first in seeds[::CHUNK]]
)
def test_random_models_compute_what_onnxruntime_computes(kind: str, first: int) -> None:
    found = [outcome_of(seed, by_references, kind) for seed in SEEDS[kind][first : first + CHUNK]]
    assert [outcome for outcome in found if outcome.kind == FAILED] == []
    counts = Counter(outcome.kind == AGREES for outcome in found)
    assert counts[False] <= MOST_OTHERS, found
