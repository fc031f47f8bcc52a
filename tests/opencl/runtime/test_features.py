"""Test that right numbers alone prove a feature, and that sources with its instructions need the proof."""

from dataclasses import replace

import pytest

from gputune.core.errors import BuildFailed
from gputune.runtime.backends import open_backend
from gputune.runtime.backends.probe import _first_of, _prove
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.features import PROBES, features_of

NAME = "x86.vpdpbusd"


def test_sources_with_assembly_need_a_proven_feature(report: DeviceReport, monkeypatch: pytest.MonkeyPatch) -> None:
    found = features_of(report)
    if found.get(NAME, "no CPU"):
        pytest.skip(f"this device has no {NAME}: {found.get(NAME, 'it is no CPU')}")
    backend = open_backend(report)
    assert _prove(backend, NAME) == ""
    monkeypatch.setitem(PROBES, NAME, replace(PROBES[NAME], wanted=(0, 24, -107, 10800)))
    assert _prove(backend, NAME) == "it computes [-387, 24, -107, 10800], not [0, 24, -107, 10800]"
    monkeypatch.setattr(backend, "prove", tuple)
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
