"""Test on which parts of a process's environment a measurement depends."""

import os
from pathlib import Path

import pytest

from gputune.runtime.devices.settings import PROCESSORS, deciding, scarce_processors


def test_what_changes_code_or_time_is_in_and_what_bounds_or_shows_is_not() -> None:
    decide = {
        "POCL_AFFINITY": "1",
        "POCL_WORK_GROUP_METHOD": "cbs",
        "POCL_EXTRA_BUILD_FLAGS": "-O1",
        "CL_CONFIG_CPU_VECTORIZER_MODE": "8",
        "IGC_ForceOCLSIMDWidth": "16",
        "HSA_OVERRIDE_GFX_VERSION": "10.3.0",
        "RUSTICL_DEBUG": "sync",
        "CUDA_FORCE_PTX_JIT": "1",
    }
    do_not = {
        "POCL_MEMORY_LIMIT": "2",
        "POCL_MAX_WORK_GROUP_SIZE": "64",
        "POCL_MAX_PTHREAD_COUNT": "2",
        "POCL_CACHE_DIR": "/tmp/one",
        "POCL_KERNEL_CACHE": "0",
        "POCL_DEBUG": "1",
        "POCL_DEVICES": "pthread",
        "CL_CONFIG_CPU_FORCE_GLOBAL_MEM_SIZE": "2GB",
        "IGC_ShaderDumpEnable": "1",
        "RUSTICL_ENABLE": "iris",
        "CUDA_CACHE_DISABLE": "1",
        "CUDA_HOME": "/usr/local/cuda",
        "PATH": "/bin",
    }
    assert deciding(decide | do_not) == decide


@pytest.fixture
def two_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {0, 3}, raising=False)


def quota(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """A root folder with the control group of this process and the files of control groups."""
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_processors_that_a_process_may_not_use_are_missed(tmp_path: Path, two_allowed: None) -> None:
    assert scarce_processors(2, tmp_path) == {}
    assert scarce_processors(1, tmp_path) == {}
    assert scarce_processors(4, tmp_path) == {PROCESSORS: "2"}


def test_threads_that_a_driver_has_bound_elsewhere_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL binds its threads to cores of their own, whatever the process was restricted to."""
    for thread in ("7", "8"):
        (tmp_path / "proc/self/task" / thread).mkdir(parents=True)
    monkeypatch.setattr(os, "sched_getaffinity", {0: {0}, 7: {0}, 8: {1}}.__getitem__, raising=False)
    assert scarce_processors(2, tmp_path) == {}


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/a/b\n", {"a/cpu.max": "150000 100000\n", "a/b/cpu.max": "max 100000\n"}),
        ("0::/\n", {"cpu.max": "150000 100000\n"}),
        (
            "4:memory:/m\n2:cpu,cpuacct:/a\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "75000\n", "cpu/a/cpu.cfs_period_us": "50000\n", "m/cpu.max": "1 100000\n"},
        ),
    ],
    ids=["around it", "its own root", "version 1"],
)
def test_a_share_of_time_is_a_want_of_processors(
    tmp_path: Path, two_allowed: None, cgroup: str, files: dict[str, str]
) -> None:
    root = quota(tmp_path, cgroup, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert scarce_processors(2, root) == {PROCESSORS: "1.5"}


@pytest.mark.parametrize("text", ["max 100000", "", "-1 100000", "100000 0", "nonsense", "400000 100000"])
def test_no_limit_and_nonsense_are_no_want(tmp_path: Path, two_allowed: None, text: str) -> None:
    assert scarce_processors(2, quota(tmp_path, "0::/\nx\n", {"sys/fs/cgroup/cpu.max": text})) == {}
