"""Set a deliberate environment for all tests, and the rule for tests that need an OpenCL device."""

import functools
import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

if TYPE_CHECKING:
    from tests.shared_server import SharedServer

NO_CI = ("", "0", "false", "no")
"""Values of CI that say that this is not continuous integration; systems differ in what they set it to."""

OPENCL_TESTS = Path(__file__).parent / "opencl"
sys.path.append(str(Path(__file__).parents[1] / "scripts"))  # demo, tool and bench are tested as modules

# Set before anything imports pyopencl, and inherited by every process a test starts.
os.environ.update(
    POCL_AFFINITY="1",  # without it, PoCL's timings are bimodal by a factor of two
    POCL_KERNEL_CACHE="0",  # a cached build would hide what compiling costs, and what it breaks
    POCL_MEMORY_LIMIT="2",  # GiB; the sizes that PoCL reports follow free memory, and a context's header holds them
    PYOPENCL_NO_CACHE="1",
)
os.environ.pop("TARGET_SERVER_SOCKET", None)

# Property tests run the same examples every time, on any machine (pyproject.toml asks for `repeatable`);
# `scripts/fuzz tests` explores with new ones.
settings.register_profile(
    "exploring",
    derandomize=False,  # hypothesis repeats examples by itself where CI is set
    deadline=None,
    database=None,
    suppress_health_check=(HealthCheck.too_slow,),
    print_blob=True,
)
settings.register_profile("repeatable", settings.get_profile("exploring"), derandomize=True)
# Hypothesis also draws constants that it finds in whatever modules of ours are imported at that moment, so examples
# would depend on which tests ran before in the same process.
providers.is_local_module_file = lambda path: False  # type: ignore[attr-defined,assignment]


def folder_of_the_run(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a folder that all processes of this run of pytest share."""
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def share_native_parts(factory: pytest.TempPathFactory, cache: Path) -> None:
    """Let a user's cache have the native parts that another process of this run has built: they take 8 s."""
    (cache / "gputune").mkdir(parents=True)
    (cache / "gputune" / "native").symlink_to(folder_of_the_run(factory, "native_parts"))


@pytest.fixture(autouse=True, scope="session")
def _user_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the tests out of the user's own cache, configuration and data."""
    home = tmp_path_factory.mktemp("home")
    share_native_parts(tmp_path_factory, home / "cache")
    os.environ["XDG_CACHE_HOME"] = str(home / "cache")
    os.environ["XDG_CONFIG_HOME"] = str(home / "config")
    os.environ["XDG_DATA_HOME"] = str(home / "data")


@pytest.fixture(scope="session")
def _null_server_of_all() -> Iterator["SharedServer"]:
    from tests.shared_server import SharedServer  # most processes of pytest have no test that needs one

    server = SharedServer("null")
    yield server
    server.stop()


@pytest.fixture
def null_server(_null_server_of_all: "SharedServer") -> Iterator["SharedServer"]:
    """Give the server on the null device that tests share; the next test finds nothing of this one's."""
    yield _null_server_of_all
    _null_server_of_all.reset()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--night", action="store_true", help="run the cases marked `night` instead of all others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests under tests/opencl, and run them last (see scripts/test). Leave out those of the other size."""
    below = functools.cache(lambda path: OPENCL_TESTS in path.parents)  # asked of a few files for many tests
    for item in items:
        if below(item.path):
            item.add_marker(pytest.mark.opencl)
    items.sort(key=lambda item: item.get_closest_marker("opencl") is not None)
    others = [item for item in items if (item.get_closest_marker("night") is not None) != config.getoption("night")]
    if others:
        config.hook.pytest_deselected(items=others)
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """For `--dist loadgroup`, as scripts/test has it."""
    from tests.scheduling import OpenCLByFile

    return OpenCLByFile(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what collecting makes, which stays to the end, out of the runs of the garbage collector."""
    gc.disable()
    result = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return result


@functools.cache
def _why_no_opencl() -> str:
    """Empty when a device passes the build-and-run test, else one line that says why none does."""
    from tests.devices import devices

    reports = devices()
    if any(report.usable for report in reports):
        return ""
    reasons = "; ".join(f"{report.title}: {report.reason}" for report in reports)
    return f"no OpenCL device works ({reasons or 'no driver is installed'})"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("opencl") is None:
        return
    if reason := _why_no_opencl():
        if os.environ.get("CI", "").lower() not in NO_CI:
            pytest.fail(f"{reason}; under CI this is a failure", pytrace=False)
        from gputune.runtime.devices.discovery import HUNG

        if HUNG in reason:  # on a machine that is too busy; all tests of this process would be left out
            pytest.fail(f"{reason}; there is a driver, so its tests are not skipped", pytrace=False)
        pytest.skip(reason)
