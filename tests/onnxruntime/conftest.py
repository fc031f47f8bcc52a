"""Provide onnxruntime with the plugin, on the fake OpenCL library."""

import pytest

from tests.native.compiling import sanitizers
from tests.native.conftest import c_compiler
from tests.native.fake import fake_library
from tests.onnxruntime.sessions import Onnxruntime, skip_unloadable
from tests.onnxruntimes import VERSIONS, child_environment

__all__ = ["c_compiler"]


@pytest.fixture(scope="session")
def newest(c_compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Onnxruntime:
    """The installed version."""
    return Onnxruntime(tmp_path_factory.mktemp("steps"), {"GPUTUNE_OPENCL_LIBRARY": str(fake_library(sanitizers()))})


@pytest.fixture(params=[pytest.param(one, marks=pytest.mark.night) if one == "oldest" else one for one in VERSIONS])
def ort(newest: Onnxruntime, request: pytest.FixtureRequest) -> Onnxruntime:
    """The oldest version that runs plugins, and the installed one."""
    return version_of(newest, request.param)


@pytest.fixture(params=VERSIONS)
def either(newest: Onnxruntime, request: pytest.FixtureRequest) -> Onnxruntime:
    """Both versions, for what shows in every run that the oldest one works."""
    return version_of(newest, request.param)


def version_of(newest: Onnxruntime, version: str) -> Onnxruntime:
    skip_unloadable(version)
    variables = child_environment(version)
    return newest.with_variables(**{name: variables[name] for name in variables if name == "PYTHONPATH"})
