"""Test the options of the plugin: of the provider, of runs, and those that change later."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gputune.runtime.power.fake_trees import make_tree
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.runtime.power.profiles.settings import Moment
from gputune.runtime.power.records import NOTHING
from gputune.runtime.profiling.log import read_log
from tests.native.fake import DEVICE, doubling_context
from tests.native.voting import planned
from tests.onnxruntime.models import node, save
from tests.onnxruntime.sessions import CONTROLS, FOLDER, Onnxruntime, Step, closed, filled, opened, run

PERF_PROFILE, WORKLOAD = "gputune.perf_profile", "ep.dynamic.workload_type"
KEPT, OWN, OTHER, EFFICIENT = "extreme_power_saver", "burst", "balanced", "power_saver"
"""Perf profiles: of sessions, of runs, and of the workload that is efficient."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    binary = doubling_context(tmp_path / "a.bin")
    return save(tmp_path / "a.onnx", [node(["x"], ["y"], binary)], ["x"], ["y"])


def test_what_is_wrong_is_said_with_what_is_right(ort: Onnxruntime, model: Path, tmp_path: Path) -> None:
    """Options of the provider, then those of onnxruntime."""
    missing = tmp_path / "libOpenCL.so"
    given: Sequence[tuple[dict[str, str], str]] = (
        ({"perf_profil": "burst"}, "there is no option 'perf_profil'; the nearest is perf_profile"),
        ({"qwerty": ""}, "there is no option 'qwerty'; the options are perf_profile, profiling_level, "),
        ({"perf_profile": "brst"}, f"there is no perf profile 'brst', only {', '.join(PRESETS)}"),
        ({"profiling_level": "linting"}, "profiling_level is 'linting', expected one of off, basic, detailed"),
        ({"profiling_level": "basi"}, "profiling_level is 'basi', expected one of off, basic, detailed"),
        ({"profiling_level": "basic"}, "profiling_level and profiling_file_path need each other"),
        ({"profiling_file_path": "log"}, "profiling_level and profiling_file_path need each other"),
        ({"cache_compatibility_mode": "loose"}, "cache_compatibility_mode is 'loose', expected one of permissive, "),
        ({"device": "Adreno"}, "no OpenCL device matches 'Adreno'; #0 Fake GPU (Fake)"),
        ({"opencl_library": str(missing)}, f"{missing} is no library with OpenCL 1.2"),
    )
    entries: Sequence[tuple[dict[str, str], str]] = (
        ({"ep.context_enable": "1"}, "ep.context_enable is 1, but the model's EPContext nodes are compiled already"),
        ({"ep.share_ep_contexts": "yes"}, "ep.share_ep_contexts is 'yes', expected one of 0, 1"),
    )
    said = ort.refusals(
        *(opened(model, options=options) for options, _ in given), *(opened(model, entries=each) for each, _ in entries)
    )
    for line, (options, words) in zip(said, (*given, *entries), strict=True):
        code = "device_not_found" if options.keys() & {"device", "opencl_library"} else "invalid_argument"
        assert f"gputune: {code}: {words}" in line


def test_all_options_together(ort: Onnxruntime, model: Path, tmp_path: Path) -> None:
    options = {
        "perf_profile": "high_performance",
        "profiling_level": "off",
        "cache_compatibility_mode": "strict",
        "device": "fake gpu",
        "opencl_library": "",
    }
    assert set(ort.outputs(model, {"x": filled(1)}, options=options)["y"]) == {8}


@pytest.mark.parametrize(("level", "launches"), [("basic", 0), ("detailed", 3)])
def test_a_session_is_profiled(newest: Onnxruntime, model: Path, tmp_path: Path, level: str, launches: int) -> None:
    options = {"profiling_level": level, "profiling_file_path": str(tmp_path / "session.log")}
    ran = newest.do(opened(model, options=options), run({"x": filled(1)}), run({"x": filled(1)}), closed())
    assert ran.results[0] is None, ran.results
    log = read_log(tmp_path / "session.log")
    assert log.header.level == level
    assert [len(one.launches) for one in log.inferences] == [launches] * 2


@dataclass(frozen=True)
class Steered:
    """A made-up file system with controls of the fake device's clocks, and sessions that vote there."""

    ort: Onnxruntime
    folder: Path
    root: Path

    def contents(self, preset: str | None, moment: Moment = "done") -> dict[Path, bytes]:
        """Return what the controls contain by a vote of an execution, or of nothing."""
        vote = NOTHING if preset is None else PerfProfile.from_preset(preset).vote("execute", moment)
        wanted = planned(self.folder, ["memory"], vote, ("gpu", DEVICE.vendor, DEVICE.name))
        return {self.root / name: content for name, content in wanted.items()}

    def contain(self, preset: str | None) -> Step:
        """Return a step that tells whether the controls come to what a preset wants between inferences."""
        return "contain", {"wanted": self.contents(preset)}

    def overlapping(self, *presets: str) -> Step:
        """Return a step of runs with perf profiles of their own, which tells whether each is seen while it runs."""
        runs = [run({"x": filled(1)}, entries={PERF_PROFILE: preset})[1] for preset in presets]
        return "run_overlapping", {"runs": runs, "wanted": [self.contents(preset, "start") for preset in presets]}


@pytest.fixture
def votes(newest: Onnxruntime, tmp_path: Path) -> Steered:
    root = make_tree(tmp_path / "root", "memory")
    found = newest.with_variables(**{CONTROLS: str(root), "XDG_RUNTIME_DIR": str(tmp_path)})
    made = Steered(found, tmp_path, root)
    distinct = [made.contents(*each) for each in ((None,), (KEPT,), (OWN, "start"), (OWN,), (OTHER, "start"))]
    assert all(distinct.count(each) == 1 for each in distinct), "else a test would take one vote for another"
    return made


def test_a_run_may_have_a_perf_profile_of_its_own(votes: Steered, model: Path) -> None:
    """The newest of overlapping runs decides; behind the last one, and behind one that is refused, the session does."""
    ran = votes.ort.do(
        opened(model, options={"perf_profile": KEPT}),
        votes.contain(KEPT),
        run({"x": filled(1)}, entries={PERF_PROFILE: "bust"}),
        votes.contain(KEPT),
        votes.overlapping(OWN),
        votes.contain(KEPT),
        votes.overlapping(OWN, OTHER),
        votes.contain(KEPT),
        closed(),
        votes.contain(None),
    )
    nothing, opens, said, refused, one, after_one, two, after_two, _, ends = ran.results
    assert f"gputune: invalid_argument: there is no perf profile 'bust', only {', '.join(PRESETS)}" in said
    assert (nothing, opens, refused, after_one, after_two, ends) == (None, *[True] * 5)
    for seen, results in (one, two):
        assert seen == [True] * len(results)
        assert all(set(result["y"]) == {8} for result in results), results


def test_runs_without_a_profile_may_overlap_with_those_that_have_one(newest: Onnxruntime, model: Path) -> None:
    runs = [run({"x": filled(1)}, entries={PERF_PROFILE: preset})[1] for preset in ("burst", "power_saver")]
    runs.append(run({"x": filled(1)})[1])
    repeated = newest.do(opened(model), ("run_in_threads", {"runs": runs, "times": 20})).results[1]
    assert repeated == [[{"y": filled(8).tobytes()}]] * 3


def test_the_workload_may_change(votes: Steered, model: Path) -> None:
    changes = [{WORKLOAD: "Efficient"}, {WORKLOAD: "Default"}, {WORKLOAD: "Slow"}, {"ep.dynamic.other": "1"}]
    changed = [("dynamic", {"session": "one", "options": options}) for options in changes]
    ran = votes.ort.do(
        opened(model, options={"perf_profile": KEPT}),
        changed[0],
        votes.contain(EFFICIENT),
        votes.overlapping(OWN),
        votes.contain(EFFICIENT),
        changed[1],
        votes.contain(KEPT),
        changed[2],
        changed[3],
        votes.contain(KEPT),
        run({"x": filled(1)}),
    )
    first, efficient, saves, own, saves_again, default, keeps, slow, other, kept, outputs = ran.results
    assert (first, efficient, saves, saves_again, default, keeps, kept) == (None, None, True, True, None, True, True)
    assert own[0] == [True]
    assert f"gputune: invalid_argument: {WORKLOAD} is 'Slow', expected one of Default, Efficient" in slow
    assert f"gputune: invalid_argument: there is no dynamic option 'ep.dynamic.other', only {WORKLOAD}" in other
    assert set(outputs["y"]) == {8}


def test_the_plugin_has_gputunes_version(newest: Onnxruntime) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f'#define PLUGIN_VERSION "{project["version"]}"' in (FOLDER / "plugin.h").read_text(encoding="utf-8")
