"""Test that right numbers alone prove a feature, and that sources with its instructions need the proof."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from gputune.core.errors import BuildFailed
from gputune.runtime.backends import open_backend
from gputune.runtime.backends.probe import _first_of, prove_on
from gputune.runtime.backends.sources import unproven
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.features import FEATURES_OPTION, PROBES, features_of

NAME = "x86.vpdpbusd"


def test_sources_with_assembly_need_a_proven_feature(report: DeviceReport, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := features_of(report, [NAME])[NAME]:
        pytest.skip(f"this device has no {NAME}: {reason}")
    backend = open_backend(report)
    assert prove_on(backend, NAME) == ("", True)
    monkeypatch.setitem(PROBES, NAME, replace(PROBES[NAME], wanted=(0, 24, -107, 10800)))
    assert prove_on(backend, NAME) == ("it computes [-387, 24, -107, 10800], not [0, 24, -107, 10800]", True)
    monkeypatch.setattr(backend, "prove", unproven)
    with pytest.raises(BuildFailed, match=f"vpdpbusd needs the feature {NAME}, which this device has not proven"):
        backend.build(PROBES[NAME].source, "")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("error: /a/b.cl:5:67: use of undeclared 'f' error: /a/b.cl:6:1: other", "use of undeclared 'f'"),
        ("3:7:46: error: invalid '+v' in asm 7 | __asm__ | ^ failed", "invalid '+v' in asm 7"),
        ("", "its compiler does not say why"),
        ("x" * 500, "x" * 120),
    ],
)
def test_a_reason_is_the_first_message_of_a_compiler(log: str, said: str) -> None:
    assert _first_of(log) == said


HANGS = """
import sys
from gputune.runtime.backends import probe
source = "__kernel void probe(__global volatile int *n) { while (n[0]) n[0] = 1; }"
probe.PROBES = {"hang": probe.PROBES["half"].__class__(source, (1,), (2,))}
probe.FEATURE_SECONDS = 1.0
sys.exit(probe.main(sys.argv[1:]))
"""


def test_a_kernel_that_hangs_is_ended_in_the_driver(report: DeviceReport) -> None:
    command = [sys.executable, "-c", HANGS, FEATURES_OPTION, json.dumps(report.to_dict()), "hang"]
    done = subprocess.run(command, env={**os.environ, **report.environment()}, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGALRM, b"")
