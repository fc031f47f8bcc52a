"""Provide the bound C runtime; without a C compiler its tests are skipped, and under CI they fail."""

import os

import pytest

from gputune.runtime.native.binding import Native
from tests.conftest import NO_CI
from tests.native.compiling import compiler, library, opencl_library


@pytest.fixture(scope="session")
def c_compiler() -> str:
    found = compiler()
    if found is None:
        if os.environ.get("CI", "").lower() not in NO_CI:
            pytest.fail("there is no C compiler; under CI this is a failure", pytrace=False)
        pytest.skip("there is no C compiler")
    return found


@pytest.fixture(scope="session")
def native(c_compiler: str) -> Native:
    os.environ |= {**opencl_library(), **os.environ}
    return Native(library())
