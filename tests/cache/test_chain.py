"""Test choices for whole models in the store: stored, replaced, emptied, and refused if they are impossible."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import ChainRecord, PerformanceCache, RecordError

from .conftest import WINNER, edit

OTHER = dataclasses.replace(WINNER, configuration={"MWG": 4})
CHAIN = ChainRecord({"a" * 64: WINNER, "b" * 64: OTHER}, {"a" * 64: 12.5}, 3.25, {"contexts": 3, "gain": 1.02})


def test_a_choice_is_kept_and_replaced(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        assert cache.chain_of("x") is None
        cache.conclude_chain("x", CHAIN)
        cache.conclude_chain("y", ChainRecord({}, {}, 0.0))
    with PerformanceCache.open(path) as cache:
        assert cache.chain_of("x") == CHAIN
        assert cache.chain_of("y") == ChainRecord({}, {}, 0.0)
        cache.conclude_chain("x", ChainRecord({"b" * 64: OTHER}, {}, 1.0))
        assert cache.chain_of("x") == ChainRecord({"b" * 64: OTHER}, {}, 1.0)


def test_invalidation_empties_it(path: Path) -> None:
    with PerformanceCache.open(path) as cache:
        cache.conclude_chain("x", CHAIN)
        cache.begin_generation("f", invalidate=True)
        assert cache.chain_of("x") is None


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE chain SET times_ns = '[1]'",
        "UPDATE chain SET times_ns = '{\"a\": 0}'",
        "UPDATE chain SET launch_ns = -1",
        "UPDATE chain SET measured = 'gone'",
        "UPDATE chain_winner SET median_ns = 'x'",
        "UPDATE chain_winner SET task = CAST(task AS BLOB)",
    ],
)
def test_a_malformed_one_is_none_with_a_warning(path: Path, statement: str) -> None:
    with PerformanceCache.open(path) as cache:
        cache.conclude_chain("x", CHAIN)
    edit(path, statement)
    with PerformanceCache.open(path) as cache:
        assert cache.chain_of("x") is None
        assert len(cache.warnings) == 1
        assert "malformed chains" in cache.warnings[0]


@pytest.mark.parametrize("wrong", [{"times_ns": {"a": -1.0}}, {"launch_ns": float("nan")}, {"measured": [1]}])
def test_impossible_contents(wrong: Any) -> None:
    with pytest.raises(RecordError):
        dataclasses.replace(CHAIN, **wrong)
