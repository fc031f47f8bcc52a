"""Test that no operation is above its roofline, and that the peaks are measured."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.viewer.analysis.roofline import OF_THIS_LOG, Roofline, roofline_of
from gputune.client.viewer.profile import profile_of
from gputune.client.viewer.schematic import RooflinePeaks
from tests.client.viewer.made_up_plans import plan, schematic
from tests.runtime.profiling import made_up

OPERATION = st.tuples(st.integers(0, 10**6), st.integers(0, 10**9), st.integers(0, 10**9))
RATE = st.floats(1e-3, 1e6)
PEAKS = st.none() | st.builds(RooflinePeaks, RATE, RATE, st.just("measured"))


def roofline(
    times_ns: Sequence[int], flops: Sequence[int], nbytes: Sequence[int], peaks: RooflinePeaks | None, device: str = ""
) -> Roofline:
    described = made_up.graph([f"op {place}" for place in range(len(times_ns))])
    log = made_up.read(made_up.written([described], [made_up.inference(times_ns)]))
    graphs = schematic(plan(described, None, flops, nbytes), peaks=peaks)
    if device:
        graphs = replace(graphs, device={**graphs.device, "name": device})
    profile = profile_of([log], graphs)
    found = roofline_of(profile, profile.graphs[0])
    assert found is not None
    return found


@given(st.lists(OPERATION, min_size=1, max_size=6), PEAKS)
def test_no_operation_is_above_its_roofline(
    operations: list[tuple[int, int, int]], peaks: RooflinePeaks | None
) -> None:
    times_ns, flops, nbytes = zip(*operations, strict=True)
    found = roofline(times_ns, flops, nbytes, peaks)
    assert all(0 <= row.share <= 1 for row in found.rows)
    for row in found.rows:
        assert row.gflops_per_s <= found.peaks.flops_per_ns
        assert row.gbytes_per_s <= found.peaks.bytes_per_ns
    if peaks is None:  # both are rates that some operation has reached
        assert found.peaks.flops_per_ns in [row.gflops_per_s for row in found.rows] or found.best_ns == 0
    else:
        assert (found.peaks.flops_per_ns > peaks.flops_per_ns) + (found.peaks.bytes_per_ns > peaks.bytes_per_ns) == len(
            found.notes
        )


def test_the_peak_that_is_farther_away_bounds_an_operation() -> None:
    peaks = RooflinePeaks(100.0, 10.0, "measured on it")
    compute, memory, nothing = roofline([4000, 5000, 7], [200_000, 1000, 0], [100, 20_000, 0], peaks).rows
    assert (compute.bound, compute.best_ns, compute.share, compute.gflops_per_s) == ("compute", 2000, 0.5, 50)
    assert (memory.bound, memory.best_ns, memory.share, memory.gbytes_per_s) == ("memory", 2000, 0.4, 4)
    assert (nothing.bound, nothing.best_ns) == ("none", 0)


def test_an_operation_that_beats_a_peak_raises_it_and_that_is_said() -> None:
    found = roofline([1000, 1000], [200_000, 50_000], [1, 1], RooflinePeaks(100.0, 10.0, "measured on it"))
    assert (found.peaks.flops_per_ns, found.peaks.bytes_per_ns) == (200, 10)
    assert found.peaks.origin.startswith("measured on it; ")
    assert found.notes == (f"the peak of 100 GFLOP/s was raised to 200: {OF_THIS_LOG}",)
    assert [row.share for row in found.rows] == [1, 0.25]


def test_the_log_of_another_device_does_not_count() -> None:
    """It has reached rates that this one is not held against, whichever of the two is looked at."""
    described = made_up.graph(["op 0", "op 1"])
    fast, slow = (
        made_up.read(made_up.written([described], [made_up.inference(times)])) for times in ([10, 10], [1000, 1000])
    )
    fast = replace(fast, header=replace(fast.header, device={**fast.header.device, "name": "another device"}))
    for peaks in (None, RooflinePeaks(5.0, 0.7, "measured on it")):
        profile = profile_of([fast, slow], schematic(plan(described, None, [5000, 100], [10, 700]), peaks=peaks))
        of_fast, of_slow = (roofline_of(profile, graph) for graph in profile.graphs)
        assert of_fast is not None and of_slow is not None
        assert of_fast.peaks == RooflinePeaks(500.0, 70.0, OF_THIS_LOG)
        assert of_slow.peaks == RooflinePeaks(5.0, 0.7, OF_THIS_LOG if peaks is None else "measured on it")
        assert (of_fast.notes, of_slow.notes) == ((), ())


def test_another_log_of_the_same_device_counts() -> None:
    described = made_up.graph(["op 0"])
    logs = [made_up.read(made_up.written([described], [made_up.inference([took])])) for took in (100, 1000)]
    profile = profile_of(logs, schematic(plan(described, None, [5000], [700])))
    found = roofline_of(profile, profile.graphs[1])
    assert found is not None and found.peaks == RooflinePeaks(50.0, 7.0, OF_THIS_LOG)


@pytest.mark.parametrize(("peaks", "device"), [(None, ""), (RooflinePeaks(1e6, 1e6, "elsewhere"), "another device")])
def test_without_peaks_of_this_device_the_best_of_the_log_are_taken(peaks: RooflinePeaks | None, device: str) -> None:
    found = roofline([1000, 1000], [5000, 100], [10, 700], peaks, device)
    assert found.peaks == RooflinePeaks(5.0, 0.7, OF_THIS_LOG)
    assert found.notes == ()
