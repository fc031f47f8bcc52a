"""Provide the bound C runtime; without a C compiler its tests are skipped, and under CI they fail."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputune.runtime.native.binding import Device, Native
from tests.conftest import NO_CI
from tests.native.compiling import compiler, library, opencl_library
from tests.native.fake import Fake


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


@pytest.fixture(scope="module")
def fake(native: Native) -> Fake:
    """A made-up OpenCL library."""
    return Fake()


@pytest.fixture
def all_is_released(fake: Fake) -> Iterator[None]:
    """No call fails before a test, and nothing of the library is left behind it."""
    fake.fail_at(0)
    yield
    fake.fail_at(0)
    fake.meet(0)
    fake.records(0)
    assert fake.alive == 0


@pytest.fixture
def device(native: Native, fake: Fake) -> Iterator[Device]:
    with native.device(opencl=str(fake.path)) as device:
        yield device


@pytest.fixture
def no_descriptor_is_left(fake: Fake) -> Iterator[None]:
    before = len([*Path("/proc/self/fd").iterdir()])
    yield
    assert len([*Path("/proc/self/fd").iterdir()]) == before
