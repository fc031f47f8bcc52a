"""Test the options of the plugin: of the provider, of runs, and those that change later."""

import tomllib
from pathlib import Path

import pytest

from gputune.runtime.power.profiles.presets import PRESETS
from gputune.runtime.profiling.log import read_log
from tests.native.fake import doubling_context
from tests.onnxruntime.models import node, save
from tests.onnxruntime.sessions import FOLDER, Onnxruntime, closed, filled, opened, run

PERF_PROFILE, WORKLOAD = "gputune.perf_profile", "ep.dynamic.workload_type"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    binary = doubling_context(tmp_path / "a.bin")
    return save(tmp_path / "a.onnx", [node(["x"], ["y"], binary)], ["x"], ["y"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"perf_profil": "burst"}, "there is no option 'perf_profil'; the nearest is perf_profile"),
        ({"qwerty": ""}, "there is no option 'qwerty'; the options are perf_profile, profiling_level, "),
        ({"perf_profile": "brst"}, f"there is no perf profile 'brst', only {', '.join(PRESETS)}"),
        ({"profiling_level": "linting"}, "profiling_level is 'linting', expected one of off, basic, detailed"),
        ({"profiling_level": "basi"}, "profiling_level is 'basi', expected one of off, basic, detailed"),
        ({"profiling_level": "basic"}, "profiling_level and profiling_file_path need each other"),
        ({"profiling_file_path": "log"}, "profiling_level and profiling_file_path need each other"),
        ({"cache_compatibility_mode": "loose"}, "cache_compatibility_mode is 'loose', expected one of permissive, "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_what_is_right(
    ort: Onnxruntime, model: Path, options: dict[str, str], words: str
) -> None:
    assert f"gputune: invalid_argument: {words}" in ort.refusal(model, options=options)


def test_onnxruntimes_own_options_are_checked(newest: Onnxruntime, model: Path) -> None:
    said = newest.refusal(model, entries={"ep.context_enable": "1"})
    assert "invalid_argument: ep.context_enable is 1, but the model's EPContext nodes are compiled already" in said
    said = newest.refusal(model, entries={"ep.share_ep_contexts": "yes"})
    assert "gputune: invalid_argument: ep.share_ep_contexts is 'yes', expected one of 0, 1" in said


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


def test_the_device_is_named(newest: Onnxruntime, model: Path, tmp_path: Path) -> None:
    said = newest.refusal(model, options={"device": "Adreno"})
    assert "gputune: device_not_found: no OpenCL device matches 'Adreno'; #0 Fake GPU (Fake)" in said
    said = newest.refusal(model, options={"opencl_library": str(tmp_path / "libOpenCL.so")})
    assert f"gputune: device_not_found: {tmp_path / 'libOpenCL.so'} is no library with OpenCL 1.2" in said


def test_a_run_may_have_a_perf_profile_of_its_own(newest: Onnxruntime, model: Path) -> None:
    """Also when runs overlap; a run that is refused leaves nothing."""
    runs = [run({"x": filled(1)}, entries={PERF_PROFILE: preset})[1] for preset in ("burst", "power_saver")]
    runs.append(run({"x": filled(1)})[1])
    ran = newest.do(
        opened(model, options={"perf_profile": "balanced"}),
        run({"x": filled(1)}, entries={PERF_PROFILE: "bust"}),
        run({"x": filled(1)}, entries={PERF_PROFILE: "burst"}),
        ("run_in_threads", {"runs": runs, "times": 20}),
    )
    nothing, said, good, repeated = ran.results
    assert nothing is None and set(good["y"]) == {8}
    assert f"gputune: invalid_argument: there is no perf profile 'bust', only {', '.join(PRESETS)}" in said
    assert repeated == [[{"y": filled(8).tobytes()}]] * 3


def test_the_workload_may_change(newest: Onnxruntime, model: Path) -> None:
    changes = [{WORKLOAD: "Efficient"}, {WORKLOAD: "Default"}, {WORKLOAD: "Slow"}, {"ep.dynamic.other": "1"}]
    steps = [("dynamic", {"session": "one", "options": options}) for options in changes]
    first, good, back, slow, other, ran = newest.do(opened(model), *steps, run({"x": filled(1)})).results
    assert (first, good, back) == (None, None, None)
    assert f"gputune: invalid_argument: {WORKLOAD} is 'Slow', expected one of Default, Efficient" in slow
    assert f"gputune: invalid_argument: there is no dynamic option 'ep.dynamic.other', only {WORKLOAD}" in other
    assert set(ran["y"]) == {8}


def test_the_plugin_has_gputunes_version(newest: Onnxruntime) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f'#define PLUGIN_VERSION "{project["version"]}"' in (FOLDER / "plugin.h").read_text(encoding="utf-8")
