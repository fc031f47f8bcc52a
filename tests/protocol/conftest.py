"""Provide the example messages as fixtures."""

from typing import Any

import pytest

from .examples import EXAMPLES


@pytest.fixture(params=EXAMPLES, ids=lambda message: type(message).__name__)
def example(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def examples() -> list[Any]:
    return EXAMPLES
