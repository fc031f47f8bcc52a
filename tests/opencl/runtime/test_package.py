"""Test a package on a real device: its own context runs from binaries, another's from source, with equal results."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gputune.runtime
from gputune.core.errors import WrongDevice
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.packing import write_package
from gputune.runtime.context.records import Context
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.opencl.runtime.test_context import X, context, expected  # noqa: F401


@pytest.fixture
def made(context: Context, tmp_path: Path) -> dict[str, Path]:  # noqa: F811
    """The context of this device, of a device with one more compute unit, of a phone, and of the null device."""
    assert NULL_REPORT.identity is not None
    device = dict(context.device)
    wider = {**device, "compute_units": device["compute_units"] + 1}
    phone = {**device, "name": "Adreno 740", "vendor": "QUALCOMM", "platform": "QUALCOMM", "driver": "q.icd"}
    devices = {"here": device, "wider": wider, "phone": phone, "null": NULL_REPORT.identity.to_dict()}
    paths = {}
    for name, identity in devices.items():
        paths[name] = tmp_path / f"{name}.bin"
        made = replace(context, device=identity, tier=name, computes=name != "null")
        write_context(paths[name], made)
    return paths


@pytest.mark.parametrize(
    ("held", "taken", "fit"),
    [
        (("null", "phone", "wider", "here"), "here", "optimal"),
        (("null", "phone", "wider"), "wider", "near"),
        (("null", "phone"), "phone", "rebuilt"),
    ],
)
def test_the_nearest_context_computes(
    made: dict[str, Path], backend: Backend, tmp_path: Path, held: tuple[str, ...], taken: str, fit: str
) -> None:
    write_package(tmp_path / "m.gtpkg", [open_context(made[name]) for name in held])
    with pytest.warns(UserWarning) if fit != "optimal" else pytest.MonkeyPatch.context():
        executor = gputune.runtime.load(tmp_path / "m.gtpkg", backend.identity.name)
    assert executor.choice is not None
    assert (executor.choice.name, executor.choice.fit) == (taken, fit)
    assert bool(executor.warnings) == (fit != "optimal")
    np.testing.assert_allclose(executor.run({"x": X})["y"], expected(X), rtol=1e-5)


def test_a_package_without_a_context_that_runs_here_says_why(made: dict[str, Path], tmp_path: Path) -> None:
    write_package(tmp_path / "m.gtpkg", [open_context(made["null"])])
    with pytest.raises(WrongDevice, match="made by the null device"):
        gputune.runtime.load(tmp_path / "m.gtpkg")
