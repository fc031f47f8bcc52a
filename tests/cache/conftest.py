"""Keys and records that the cache tests share."""

from pathlib import Path

import pytest

from gputune.cache import TaskKey, TrialRecord, Validity, WinnerRecord

TASK = TaskKey(
    op="Conv",
    problem={"batch": 1, "height": 56, "bias": True, "epilogue": {"steps": [["clip", [0.0, 6.0]]]}},
    dtype="float32",
    layout="NHWC",
)
VALIDITY = Validity(
    device_name="pthread-skylake-avx512-AMD EPYC",
    platform="Portable Computing Language",
    driver_version="3.1",
    compute_units=2,
    source_sha256="a" * 64,
    space_sha256="b" * 64,
    measuring_version=1,
    vendor="AuthenticAMD",
    platform_version="OpenCL 3.0 PoCL 3.1, LLVM 15",
    device_version="OpenCL 3.0 PoCL HSTR",
    device_type="cpu",
    settings={"POCL_AFFINITY": "1"},
)
WINNER = WinnerRecord(
    configuration={"MWG": 8, "VWN": 16},
    median_ns=1000.5,
    default_ns=4000.0,
    effort="quick",
    binary=b"\x00\xffELF",
    trials={"ok": 2, "timeout": 1},
    rendered_sha256="c" * 64,
)


def trial(number: int) -> TrialRecord:
    return TrialRecord(
        configuration={"MWG": number},
        status="ok",
        samples_ns=[1000.0 + number, 900.0, 1200.0],
        compile_ns=2e8,
        measured={"samples": 3, "sample_ns": 1e6, "rounds": [1, 2]},
        rendered_sha256="0123456789abcdef" * 4,
    )


FAILED = TrialRecord(
    configuration={"MWG": 64}, status="device_limits", message="local memory: asked 65536, available 32768"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "caches" / "tier.sqlite"
