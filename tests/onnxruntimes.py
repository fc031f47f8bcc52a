"""Give tests the versions of onnxruntime that gputune's plugin has to work in: the oldest, and that of .venv."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import NO_CI

OLDEST = "1.23.2"
VERSIONS = ("oldest", "newest")
"""Parameters for tests."""
FOLDER = Path(__file__).parents[1] / "build" / f"onnxruntime-{OLDEST}"


def child_environment(version: str) -> Mapping[str, str]:
    """Return the variables of a child of this Python that imports this version of onnxruntime; its dependencies are
    those of .venv. The oldest is installed from PyPI when it is first asked for; the test is skipped where that fails,
    and fails under CI."""
    if version == "newest":
        return dict(os.environ)
    if why := _why_no_oldest():
        if os.environ.get("CI", "").lower() not in NO_CI:
            pytest.fail(f"{why}; under CI this is a failure", pytrace=False)
        pytest.skip(why)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER), *filter(None, [path])])}


@functools.cache
def _why_no_oldest() -> str:
    """Install the oldest version, unless it is there; why that fails, or nothing."""
    if FOLDER.is_dir():
        return ""
    FOLDER.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=FOLDER.name, dir=FOLDER.parent) as name:
        made = Path(name) / "made"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command = [*pip, "--target", str(made), f"onnxruntime=={OLDEST}"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            return f"onnxruntime {OLDEST} cannot be installed: {' '.join(done.stderr.split())[-300:]}"
        try:
            made.rename(FOLDER)
        except OSError:  # another test process was faster
            if not FOLDER.is_dir():
                raise
    return ""
