"""Test how a context fits a device."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.core.identity import DeviceIdentity
from gputune.core.statuses import ContextVerdict
from gputune.runtime.backends import open_backend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.loading.verdict import verdict_on

OPTIMAL, PREFER, UNSUPPORTED = ContextVerdict


@pytest.fixture
def real(context: Context, tmp_path: Path) -> Path:
    """The small context as if a device had made it that computes."""
    write_context(tmp_path / "real.bin", replace(context, computes=True))
    return tmp_path / "real.bin"


def device(**fields: Any) -> DeviceIdentity:
    assert NULL_REPORT.identity is not None
    return replace(NULL_REPORT.identity, **fields)


@pytest.mark.parametrize(
    ("fields", "verdict", "reason"),
    [
        ({}, OPTIMAL, ""),
        ({"global_memory_bytes": 5}, OPTIMAL, ""),
        ({"driver_version": "2"}, PREFER, "driver_version is '2', not '1'"),
        ({"platform_version": "2"}, PREFER, "platform_version is '2', not '1'"),
        ({"name": "gpu", "compute_units": 8}, PREFER, "name is 'gpu', not 'null'; compute_units is 8, not 1"),
        ({"max_work_group_size": 2}, UNSUPPORTED, "cannot run graph 'main': work-group of 4 work-items, the device"),
        ({"max_work_item_sizes": (2, 1, 1)}, UNSUPPORTED, "local size 4 in dimension 0, the device allows 2"),
        ({"max_allocation_bytes": 159}, UNSUPPORTED, "a buffer of 256 bytes, the device's largest allocation is 159"),
        ({"base_address_alignment_bytes": 256}, UNSUPPORTED, "offset 128, the device aligns parts to 256 bytes"),
        ({"name": "gpu", "max_work_group_size": 2}, UNSUPPORTED, "gpu cannot run graph 'main'"),
    ],
)
def test_a_verdict_has_its_reason(real: Path, fields: dict[str, Any], verdict: ContextVerdict, reason: str) -> None:
    with open_context(real) as file:
        found, why = verdict_on(file.header, file.header.graphs, device(**fields), computes=True)
        assert found is verdict and reason in why and bool(why) == (verdict is not OPTIMAL)


def test_a_graph_that_fits_is_beside_one_that_does_not(real: Path, context: Context) -> None:
    large = replace(context.graphs[0], name="large", arena_bytes=(1 << 20,))
    write_context(real, replace(context, graphs=(*context.graphs, large), computes=True))
    small = device(max_allocation_bytes=4096)
    with open_context(real) as file:
        graphs = file.header.graphs
        assert verdict_on(file.header, graphs[:1], small, computes=True)[0] is OPTIMAL
        assert verdict_on(file.header, graphs, small, computes=True)[0] is UNSUPPORTED


def test_a_context_of_the_null_device_suits_it_alone(context_path: Path, real: Path) -> None:
    """And the null device stands in for every other one, without a warning about programs that it does not run."""
    with open_context(context_path) as file, warnings.catch_warnings():
        warnings.simplefilter("error")
        verdict, reason = verdict_on(file.header, file.header.graphs, device(name="gpu"), computes=True)
        assert verdict is UNSUPPORTED and "made by the null device" in reason and "cannot run on gpu" in reason
        assert verdict_on(file.header, file.header.graphs, device(driver_version="0"), computes=False)[0] is OPTIMAL
    with open_context(real) as file:
        backend = open_backend(NULL_REPORT)
        backend.identity = device(driver_version="2")
        assert executor_on(backend, file, None, strict=True).warnings == []
