"""Test what a client asks a target about the features of its device."""

import pytest

from gputune.server.protocol.messages import FeaturesProven, ProveFeatures
from tests.client.fake_target import FakeTarget

from .asking import connect


def test_a_target_is_asked_for_what_it_can_test(target: FakeTarget) -> None:
    target.server["features"] = ["half", "subgroups"]
    target.answer = lambda _, request: FeaturesProven({"half": "", "more": "", "subgroups": "it does not compile"})
    with connect(target) as client:
        assert client.proven(["subgroups", "half", "sorcery"]) == {"half"}
        assert client.proven([]) == frozenset()
    assert target.requests(1) == [ProveFeatures(("half", "subgroups"))]


@pytest.mark.parametrize("told", [None, [], 7, "half", {"half": 1}, [["half"], 5]])
def test_a_target_that_can_test_nothing_is_not_asked(target: FakeTarget, told: object) -> None:
    """An older server says nothing of features, and does not know the request."""
    if told is not None:
        target.server["features"] = told
    with connect(target) as client:
        assert client.proven(["half"]) == frozenset()
    assert target.requests(1) == []


def test_a_feature_of_which_a_target_says_nothing_is_not_there(target: FakeTarget) -> None:
    target.server["features"] = ["half"]
    target.answer = lambda _, request: FeaturesProven({})
    with connect(target) as client:
        assert client.proven(["half"]) == frozenset()
