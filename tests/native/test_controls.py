"""Test each family of devices on a tree of its files.

The tests check what is written in which order, what is said of files that refuse, and that everything is restored.
"""

import errno
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputune.runtime.native.power import Controls, Planned
from gputune.runtime.power.cl_hints import hints
from gputune.runtime.power.fake_trees import LATENCY, TREES, make_tree
from gputune.runtime.power.records import NOTHING, PLACES, Corner, Corners, PowerMode, Vote, ignored_by
from tests.native.compiling import OPTIMISED, compiled, sanitizers
from tests.native.voting import ADRENO, CPU, MALI, Voting, contents, files, identity, place, start, voting_program
from tests.waiting import becomes

FAMILIES = sorted(TREES)
TURBO, SLOW = (Corners(each, each, each) for each in (Corner.TURBO, Corner.SVS))
UP = Vote(TURBO, TURBO, dcvs=False, sleep_latency_us=100, high_performance=True)
DOWN = Vote(SLOW, Corners(Corner.SVS2, Corner.SVS, Corner.SVS), sleep_latency_us=2000, high_performance=True)
SAVE = Vote(power_mode=PowerMode.POWER_SAVER)

ORDERS = json.loads(Path(__file__).with_name("orders_of_writes.json").read_text(encoding="utf-8"))
"""What is written for the votes UP, DOWN and SAVE one after the other, and on the way back."""


@pytest.fixture(scope="module")
def program(c_compiler: None) -> Path:
    return voting_program(sanitizers())


def planned(root: Path, votes: Sequence[Vote], device: Sequence[str] = ("all", "", "")) -> list[list[Planned]]:
    """The writes for each vote and on the way back, but those of the processors' latency."""
    with Controls(identity(device), root) as controls:
        found = [each for each in controls.planned([vote.places for vote in votes]) if not each.path.endswith(LATENCY)]
    return [[write for write in found if write.step == step] for step in range(len(votes) + 1)]


def in_words(writes: Sequence[Planned]) -> str:
    return " ".join(f"{Path(write.path).name}={write.value.strip().replace(' ', ',')}" for write in writes)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_order_of_writes(family: str, tmp_path: Path) -> None:
    root = make_tree(tmp_path, family)
    before = contents(root)
    assert [in_words(writes) for writes in planned(root, (UP, DOWN, SAVE))] == ORDERS[family]
    assert contents(root) == before


def test_what_is_planned_is_written(program: Path, tmp_path: Path) -> None:
    root, log = make_tree(tmp_path / "root", "kgsl", "mali", "cpufreq"), tmp_path / "writes"
    wanted = " ".join(map(in_words, planned(root, (UP,))))
    with place():
        voting = Voting(program, root, WRITES=str(log))
        voting.vote(UP)
        voting.end()
    assert log.read_text().split() == wanted.split()


CORNERS = st.sampled_from(list(Corner))
RISING = st.tuples(CORNERS, CORNERS, CORNERS).map(lambda each: Corners(*sorted(each)))
VOTES = st.builds(Vote, RISING, RISING, st.booleans(), st.none(), st.sampled_from(list(PowerMode)), st.booleans())
ENDS = {"min_freq": ("max_freq", True), "max_freq": ("min_freq", False)}


def crosses(write: Planned, now: Mapping[str, str]) -> bool:
    """Whether an end of a range would lie beyond the other one, which the kernel refuses."""
    other, low = ENDS.get(Path(write.path).name, ("", False))
    if not other:
        return False
    value, bound = int(write.value), int(now[str(Path(write.path).with_name(other))])
    return value > bound if low else value < bound


@given(votes=st.lists(VOTES, min_size=1, max_size=4), family=st.sampled_from(["mali", "memory", "xe"]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_write_lets_a_range_cross(votes: list[Vote], family: str, tmp_path: Path) -> None:
    root = make_tree(tmp_path, family)
    before = {str(root / path): content.decode() for path, content in contents(root).items()}
    now = dict(before)
    for writes in planned(root, votes):
        for write in writes:
            assert not crosses(write, now)
            now[write.path] = write.value
    assert now == before


ERRORS = (errno.EACCES, errno.EROFS, errno.EINVAL, errno.ENOENT, errno.EBUSY)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_refused_write_is_one_warning(program: Path, family: str, tmp_path: Path) -> None:
    """The other files are written, and all of them are brought back."""
    with place() as folder:
        for number, write in enumerate(planned(make_tree(tmp_path, family), (UP,))[0][:4]):
            root = make_tree(tmp_path, family)
            before, voting = contents(root), Voting(program, root)
            error, name = ERRORS[(number + FAMILIES.index(family)) % len(ERRORS)], Path(write.path).name
            voting.tell("fail", error, name)
            for _ in range(2):
                voting.tell("close", 0)
                voting.vote(UP)
            (line,) = voting.told()
            assert f"/{name}: {errno.errorcode[error]}: " in line
            assert line.startswith(
                tuple(actuator for actuator in ("amdgpu", "cpufreq", "devfreq", "i915", "kgsl", "xe"))
            )
            expected = {each.path: each.value for each in planned(make_tree(folder / "other", family), (UP,))[0]}
            for path, content in contents(root).items():
                if other := expected.get(str(folder / "other" / path)):
                    assert content == (before[path] if Path(path).name == name else other.encode())
            voting.tell("fail")
            voting.end()
            assert contents(root) == before
            assert files(folder) == []


def test_a_slow_control_is_not_waited_for(program: Path, tmp_path: Path) -> None:
    """Votes given meanwhile follow; the files are locked, so that no other process writes between."""
    root = make_tree(tmp_path, "kgsl")
    with place() as folder:
        before, voting = contents(root), Voting(program, root)
        voting.tell("stall", 1500, "max_pwrlevel")
        voting.tell("open", word="burst")
        for _ in range(3):
            voting.tell("begin", word="execute")
            voting.tell("end", word="execute")
        voting.tell("stall", 0, "max_pwrlevel")
        voting.tell("sync")
        voting.tell("close")
        assert becomes(lambda: contents(root) == before)
        voting.end()
        assert files(folder) == []


def test_what_fails_to_go_back_is_tried_again_and_stays_in_the_journal(program: Path, tmp_path: Path) -> None:
    root = make_tree(tmp_path, "mali")
    with place() as folder:
        before, voting = contents(root), Voting(program, root)
        voting.vote("burst")
        voting.tell("fail", errno.EBUSY, "min_freq")
        voting.tell("close")
        assert any(path.suffix == ".originals" for path in files(folder))
        voting.tell("fail")
        assert becomes(lambda: files(folder) == [])
        assert contents(root) == before
        voting.end()


def test_what_a_driver_makes_of_a_value_is_said(program: Path, tmp_path: Path) -> None:
    root = make_tree(tmp_path, "i915")
    with place():
        voting = Voting(program, root)
        voting.tell("clamp", 900, "rps_max_freq_mhz")
        voting.vote(Vote(core=Corners(most=Corner.NOM)))
        (line,) = voting.told()
        assert "rps_max_freq_mhz: CLAMPED: reads '900' after '870' was written" in line
        voting.end()


def test_files_that_have_gone_are_no_problem_on_the_way_back(program: Path, tmp_path: Path) -> None:
    root = make_tree(tmp_path, "cpufreq")
    with place() as folder:
        before, voting = contents(root), Voting(program, root)
        voting.vote(UP)
        gone = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
        (root / gone).unlink()
        voting.tell("close")
        assert voting.told() == [] and files(folder) == []
        assert contents(root) == {path: content for path, content in before.items() if path != gone}
        voting.end()


HOSTILE = {
    "empty": b"",
    "zeros": b"\0" * 64,
    "long": b"9" * 5000,
    "other letters": "schnell\xfc".encode("latin-1"),
    "quotes": b'"\\"\n',
    "signs": b"-1\n",
    "too many frequencies": b" ".join(str(each).encode() for each in range(1, 2000)),
    "huge numbers": b"99999999999999999999999 1\n",
}


@pytest.mark.parametrize("content", HOSTILE)
def test_any_content_of_a_tree_is_survived(program: Path, tmp_path: Path, content: str) -> None:
    """Each file of a tree has it in turn; the others are brought back, and it is as it was."""
    make_tree(tmp_path / "names", "kgsl", "amdgpu", "pstate", "i915")
    for path in contents(tmp_path / "names"):
        root = make_tree(tmp_path / "root", "kgsl", "amdgpu", "pstate", "i915")
        (root / path).write_bytes(HOSTILE[content])
        before = contents(root)
        with place() as folder:
            voting = Voting(program, root)
            voting.vote(UP)
            voting.end()
            assert contents(root) == before and files(folder) == [], path


def test_what_is_no_file_is_left_alone(program: Path, tmp_path: Path) -> None:
    root = make_tree(tmp_path, "mali", "memory")
    (folder,) = root.glob("sys/class/devfreq/*.mali")
    for name in ("governor", "min_freq"):
        (folder / name).unlink()
        (folder / name).mkdir()
    (folder / "max_freq").unlink()
    (folder / "max_freq").symlink_to("/dev/full")
    with place() as votes:
        before, voting = contents(root), Voting(program, root)
        voting.vote(UP)
        voting.end()
        assert contents(root) == before and files(votes) == []


@pytest.mark.parametrize(
    ("device", "key"),
    [
        (CPU, "cpufreq"),
        (ADRENO, "kgsl+devfreq"),
        (MALI, "devfreq"),
        (("gpu", "Intel(R) Corporation", "Intel(R) Arc(TM) A770"), "i915+xe"),
        (("gpu", "Advanced Micro Devices, Inc.", "gfx1100"), "amdgpu"),
        (("gpu", "NVIDIA Corporation", "NVIDIA H200"), ""),
        (("gpu", "Nobody", "Unheard-of"), "devfreq"),
        (("all", "", ""), "amdgpu+i915+xe+kgsl+devfreq+cpufreq"),
    ],
)
def test_a_key_names_the_controls_of_a_device(tmp_path: Path, device: Sequence[str], key: str) -> None:
    root = make_tree(tmp_path)
    with Controls(identity(device), root) as controls:
        assert controls.key == f"{key}{'+' if key else ''}cpu_latency {root.resolve()}"


def test_several_of_a_kind_are_numbered(tmp_path: Path) -> None:
    root = make_tree(tmp_path, "amdgpu")
    (root / "sys/class/drm/card0").rename(root / "sys/class/drm/card1")
    make_tree(tmp_path, "amdgpu")
    with Controls(None, root) as controls:
        assert controls.key.startswith("amdgpu_0+amdgpu_1+")
        assert {"amdgpu_1.core_hz", "amdgpu_0.bus_hz"} <= controls.clocks()[1].keys()


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
def test_what_a_device_of_devfreq_is(tmp_path: Path, name: str, domain: str | None) -> None:
    root = make_tree(tmp_path, "mali")
    folder = root / "sys/class/devfreq"
    (folder / "13000000.mali").rename(folder / name)
    with Controls(identity(MALI), root) as controls:
        found = controls.honoured & {PLACES["bus"], PLACES["core"]}
    assert found == (set() if domain is None else {PLACES[domain]})


def test_a_field_that_is_not_honoured_is_named(tmp_path: Path) -> None:
    with Controls(identity(MALI), make_tree(tmp_path, "mali")) as controls:
        assert ignored_by(UP, controls.honoured) == ["bus", "high_performance"]
        assert ignored_by(Vote(power_mode=PowerMode.DUTY_CYCLE), controls.honoured) == ["power_mode"]
        assert ignored_by(NOTHING, controls.honoured) == []
    found = identity(MALI)
    assert found is not None
    assert [hint.offered for hint in hints(found)] == [False, False, False]


# --- NVIDIA -------------------------------------------------------------------------------------------

NVIDIA = ("gpu", "NVIDIA Corporation", "NVIDIA H200")


@pytest.fixture(scope="module")
def nvml(c_compiler: None) -> Path:
    source = Path(__file__).with_name("fake_nvml.c")
    made = compiled("libnvidia-ml.so.1", [source], (*OPTIMISED, "-fvisibility=default", "-shared"))
    return made.parent


@pytest.mark.parametrize("denied", [False, True])
def test_clocks_of_nvidia_are_locked_and_left_to_the_driver_again(
    program: Path, nvml: Path, tmp_path: Path, denied: bool
) -> None:
    log = tmp_path / "calls"
    more = {"NVML_DENIES": "1"} if denied else {}
    with place() as folder:
        voting = Voting(program, Path("/"), NVIDIA, LD_LIBRARY_PATH=str(nvml), NVML_CALLS=str(log), **more)
        for _ in range(2):
            voting.tell("close", 0)
            voting.vote(Vote(core=Corners(target=Corner.TURBO), dcvs=False))
        if denied:
            (line,) = voting.told()
            assert line.startswith("nvml: /nvml/0/core_locked_clocks: EPERM: not allowed; run as root")
        voting.end()
        assert files(folder) == []
    assert denied or log.read_text().split() == ["core:1740:1740", "core", "bus"] * 2


def test_the_clocks_of_a_killed_process_are_left_to_the_driver(program: Path, nvml: Path, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    with place() as folder:
        voting = Voting(program, Path("/"), NVIDIA, LD_LIBRARY_PATH=str(nvml), NVML_CALLS=str(log))
        voting.vote(start("burst"))
        voting.end(kill=True)
        assert any(path.suffix == ".originals" for path in files(folder))
        log.unlink()
        other = Voting(program, Path("/"), NVIDIA, LD_LIBRARY_PATH=str(nvml), NVML_CALLS=str(log))
        other.tell("open", word="balanced")
        assert becomes(lambda: files(folder) == [])
        assert log.read_text().split() == ["core", "bus"]
        other.end()
