"""Test each family of devices on a tree of its files.

The tests check what is written in which order, what is said of files that refuse, and that everything is restored.
"""

import errno
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputune.core.identity import DeviceIdentity
from gputune.runtime.power.actuators.base import Actuator, Write
from gputune.runtime.power.actuators.cl_hints import hints
from gputune.runtime.power.actuators.devfreq import domain_of
from gputune.runtime.power.fake_trees import TREES, make_tree
from gputune.runtime.power.records import Corner, Corners, PowerMode, Vote
from gputune.runtime.power.steering import Steering, all_steerings, families_of, find_actuators, find_steering

FAMILIES = sorted(TREES)
TURBO, SLOW = (Corners(each, each, each) for each in (Corner.TURBO, Corner.SVS))
UP = Vote(TURBO, TURBO, dcvs=False, sleep_latency_us=100, high_performance=True)
DOWN = Vote(SLOW, Corners(Corner.SVS2, Corner.SVS, Corner.SVS), sleep_latency_us=2000, high_performance=True)
SAVE = Vote(power_mode=PowerMode.POWER_SAVER)

ORDERS = json.loads(Path(__file__).with_name("orders_of_writes.json").read_text(encoding="utf-8"))
"""What is written for the votes UP, DOWN and SAVE one after the other, and on the way back."""


def steered(root: Path, before_write: Callable[[Write], None] | None = None, limit_s: float = 10.0) -> Steering:
    """Everything below a root but the processors' latency."""
    found: list[Actuator] = find_actuators(None, root, before_write)
    return Steering([actuator for actuator in found if actuator.name != "cpu_latency"], limit_s)


def contents(root: Path) -> dict[str, str]:
    """All files but those that read otherwise than what is written to them."""
    files = (path for path in (root / "sys").rglob("*") if path.is_file() and not path.name.startswith("pp_dpm"))
    return {str(path): path.read_text() for path in files}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_order_of_writes(family: str, tmp_path: Path) -> None:
    writes: list[str] = []
    steering = steered(
        make_tree(tmp_path, family),
        lambda write: writes.append(f"{write.path.name}={write.value.strip().replace(' ', ',')}"),
    )
    before, originals = contents(tmp_path), steering.originals()
    orders = []
    for vote in (UP, DOWN, SAVE):
        assert steering.apply(vote).problems == ()
        orders.append(" ".join(writes))
        writes.clear()
    assert steering.restore(originals) == []
    assert [*orders, " ".join(writes)] == ORDERS[family]
    assert contents(tmp_path) == before


IDENTITY = DeviceIdentity(
    platform="",
    platform_version="",
    name="",
    vendor="",
    driver_version="",
    device_version="",
    device_type="gpu",
    compute_units=1,
    max_work_group_size=1,
    max_work_item_sizes=(1, 1, 1),
    local_memory_bytes=1,
    global_memory_bytes=1,
    max_allocation_bytes=1,
    base_address_alignment_bytes=1,
    preferred_float_width=1,
)

CORNERS = st.sampled_from(Corner)
RISING = st.tuples(CORNERS, CORNERS, CORNERS).map(lambda each: Corners(*sorted(each)))
VOTES = st.builds(Vote, RISING, RISING, st.booleans(), st.none(), st.sampled_from(PowerMode), st.booleans())
ENDS = {"min_freq": ("max_freq", True), "max_freq": ("min_freq", False)}


def strict(write: Write) -> None:
    """Refuses an end of a range beyond the other one, as the kernel does."""
    for name, (other, low) in ENDS.items():
        if write.path.name == name:
            value, bound = int(write.value), int((write.path.parent / other).read_text())
            if value > bound if low else value < bound:
                raise OSError(errno.EINVAL, "the ends would cross")


@pytest.mark.slow
@given(votes=st.lists(VOTES, min_size=1, max_size=4), family=st.sampled_from(["mali", "memory", "xe"]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_write_lets_a_range_cross(votes: list[Vote], family: str, tmp_path: Path) -> None:
    refused: list[Write] = []

    def kernel(write: Write) -> None:
        try:
            strict(write)
        except OSError:
            refused.append(write)
            raise

    steering = steered(make_tree(tmp_path, family), kernel)
    before, originals = contents(tmp_path), steering.originals()
    for vote in votes:
        applied = steering.apply(vote)
        assert applied.problems == ()
        assert applied.requested.items() <= applied.effective.items()
    steering.restore(originals)
    assert (refused, contents(tmp_path)) == ([], before)


ERRORS = (errno.EACCES, errno.EROFS, errno.EINVAL, errno.ENOENT, errno.EBUSY)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_refused_write_is_one_warning(family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    planned = [write for actuator in steered(make_tree(tmp_path, family)).actuators for write in actuator.plan(UP)]
    for number, refused in enumerate(write.path for write in planned):
        make_tree(tmp_path, family)
        error = ERRORS[(number + FAMILIES.index(family)) % len(ERRORS)]

        def before(write: Write, refused: Path = refused, error: int = error) -> None:
            if write.path == refused:
                raise OSError(error, "injected")

        steering = steered(tmp_path, before)
        originals = steering.originals()
        caplog.clear()
        for _ in range(2):
            problems = steering.apply(UP).problems
            assert [(problem.path, problem.error) for problem in problems] == [(refused, errno.errorcode[error])]
        assert [str(refused) in record.getMessage() for record in caplog.records] == [True]
        untouched = TREES[family][str(refused.relative_to(tmp_path))]
        assert refused.read_text() == untouched
        assert all(write.path.read_text() == write.value for write in planned if write.path != refused)
        steering.restore(originals)
        assert steering.originals() == originals


def test_a_slow_file_is_not_waited_for(tmp_path: Path) -> None:
    begun, released = threading.Event(), threading.Event()

    def before(write: Write) -> None:
        if write.path.name == "max_pwrlevel" and not released.is_set():
            begun.set()
            assert released.wait(30)

    steering = steered(make_tree(tmp_path, "kgsl"), before, limit_s=0.001)
    originals = steering.originals()
    steering.apply(UP)
    assert begun.wait(30)
    found = [(problem.path.name, problem.error) for problem in steering.apply(UP).problems]
    assert found == [("max_pwrlevel", "SLOW")]
    steering.apply(DOWN)
    assert [problem.error for problem in steering.restore(originals)] == ["SLOW"]
    assert not steering.wait(0)
    released.set()
    assert steering.wait(30)
    assert steering.originals() == originals
    steering._limit_s = 10.0
    assert steering.apply(UP).problems == ()  # it is waited for again


def test_what_a_driver_makes_of_a_value_is_said(tmp_path: Path) -> None:
    steering = steered(make_tree(tmp_path, "i915"))
    (actuator,) = steering.actuators
    most = next(path for path in actuator.paths if path.name == "rps_max_freq_mhz")
    (problem,) = actuator.write([Write(most, "1500"), Write(most, "900")])
    assert (problem.path, problem.error) == (most, "CLAMPED")
    assert "reads '900' after '1500' was written" in problem.line


def test_files_that_have_gone_are_no_problem_on_the_way_back(tmp_path: Path) -> None:
    steering = steered(make_tree(tmp_path, "cpufreq"))
    originals = steering.originals()
    steering.apply(UP)
    gone = next(path for path in map(Path, originals) if path.name == "scaling_governor")
    gone.unlink()
    foreign = tmp_path / "sys/foreign"
    foreign.write_text("1")
    assert [problem.error for problem in steering.restore(originals | {str(foreign): "0"})] == ["UNKNOWN"]
    assert foreign.read_text() == "1"
    assert steering.originals() == {path: content for path, content in originals.items() if path != str(gone)}


def test_what_a_vote_leaves_alone_goes_back_to_adopted_contents(tmp_path: Path) -> None:
    first = steered(make_tree(tmp_path, "mali"))
    originals = first.originals()
    first.apply(UP)
    second = steered(tmp_path)  # of another process, which finds the first one's contents
    second.adopt(originals)
    second.apply(Vote(core=Corners(most=Corner.SVS)))
    found = {Path(path).name: content.strip() for path, content in second.originals().items()}
    assert found == {"governor": "simple_ondemand", "min_freq": "200000000", "max_freq": "400000000"}


@pytest.mark.parametrize(
    ("device_type", "vendor", "name", "first"),
    [
        ("cpu", "GenuineIntel", "Intel(R) Xeon(R)", "cpufreq"),
        ("gpu", "QUALCOMM", "QUALCOMM Adreno(TM)", "kgsl"),
        ("gpu", "ARM", "Mali-G710 r0p0", "devfreq"),
        ("gpu", "Intel(R) Corporation", "Intel(R) Arc(TM) A770", "intel"),
        ("gpu", "Advanced Micro Devices, Inc.", "gfx1100", "amdgpu"),
        ("gpu", "NVIDIA Corporation", "NVIDIA H200", "nvml"),
        ("gpu", "Nobody", "Unheard-of", "devfreq"),
    ],
)
def test_families_by_device(device_type: str, vendor: str, name: str, first: str) -> None:
    families = families_of(replace(IDENTITY, device_type=device_type, vendor=vendor, name=name))
    assert (families[0], families[-1]) == (first, "cpu_latency")


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("13000000.mali", "core"),
        ("17000010.devfreq_mif", "bus"),
        ("17000030.devfreq_g3d", "core"),
        ("soc:qcom,gpubw", "bus"),
        ("soc:qcom,cpu-llcc-bw", "bus"),
        ("1d84000.ufshc", None),
    ],
)
def test_what_a_device_of_devfreq_is(name: str, domain: str | None) -> None:
    assert domain_of(name) == domain


def test_a_field_that_is_not_honoured_is_named(tmp_path: Path) -> None:
    assert steered(make_tree(tmp_path, "mali")).ignored(UP) == ["bus", "sleep_latency_us", "high_performance"]
    offered = replace(IDENTITY, extensions=("cl_qcom_perf_hint",))
    assert [hint.offered for hint in hints(offered)] == [True, False, False]


def test_a_key_names_the_controls(tmp_path: Path) -> None:
    make_tree(tmp_path, "cpufreq", "kgsl", "memory")
    cpu = replace(IDENTITY, device_type="cpu", vendor="any")
    assert find_steering(cpu, tmp_path).key == f"cpufreq+cpu_latency {tmp_path.resolve()}"
    names = [steering.key.partition(" ")[0] for steering in all_steerings(tmp_path)]
    assert names == ["cpufreq+cpu_latency", "kgsl+devfreq+cpu_latency", "devfreq+cpu_latency"]
