"""Test cache modes on the null device: what is read, what is kept, what fails."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import PerformanceCache
from gputune.client.errors import CacheMiss
from tests.client import models
from tests.client.commands import Generate, Generated, Gputune, config_file
from tests.client.models import save
from tests.disks import no_room


def requests(ran: Generated) -> tuple[int, int]:
    """Return how often the target was asked to profile and to compile."""
    return ran.summary["totals"]["profile_requests"], ran.summary["totals"]["compile_requests"]


def trials(tmp_path: Path) -> int:
    (file,) = (tmp_path / "cache").glob("*.sqlite")
    with PerformanceCache.open_readonly(file) as cache:
        return sum(sum(summary.trials.values()) for summary in cache.tasks())


def test_off_neither_reads_nor_keeps(generate: Generate, tmp_path: Path) -> None:
    for _ in range(2):
        ran = generate(effort="quick", cache_mode="off")
        assert ran.code == 0, ran.err
        assert ran.summary["totals"]["profile_requests"] > 0
        assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("command", ["context-binary-generator", "performance-cache explain"])
def test_frozen_without_a_cache_says_how_to_get_one(
    gputune: Gputune, tmp_path: Path, null_target: tuple[object, ...], command: str
) -> None:
    """Before a device is opened where the folder has no cache at all, else as soon as the device's tier is known."""
    output = ("--binary_file", "m", "--output_dir", tmp_path) if command == "context-binary-generator" else ()
    words = (
        *command.split(), "--model", save(models.conv_relu_gemm(), tmp_path), *output, "--tuning_effort", "quick",
        "--config_file", config_file(tmp_path, cache_mode="frozen"),
    )  # fmt: skip
    cache = tmp_path / "cache"
    ran = gputune(*words, "--target", "127.0.0.1:1")
    assert ran.code == CacheMiss.exit_code
    assert f"the performance cache is frozen, and there is none in {cache}: tune with another cache_mode" in ran.err
    assert not cache.exists()
    cache.mkdir()
    (cache / "another-tier.sqlite").touch()
    ran = gputune(*words, *null_target)
    assert ran.code == CacheMiss.exit_code
    assert f"and {cache / 'null-cu1.sqlite'} does not exist: tune with another cache_mode" in ran.last_line
    assert "gputune performance-cache import" in ran.last_line
    assert [path.name for path in cache.iterdir()] == ["another-tier.sqlite"]


def test_frozen_uses_what_is_there_and_fails_on_anything_else(generate: Generate, tmp_path: Path) -> None:
    assert "0 of 3 tasks are known, 3 are new" in generate(effort="quick").err
    before = {path.name: path.read_bytes() for path in (tmp_path / "cache").iterdir()}
    ran = generate(effort="quick", cache_mode="frozen")
    assert ran.code == 0, ran.err
    assert "3 of 3 tasks are known" in ran.err
    assert requests(ran) == (0, 0)
    ran = generate(effort="normal", cache_mode="frozen")
    assert ran.code == CacheMiss.exit_code
    assert "does not hold 3 tasks" in ran.last_line
    assert "effort: quick -> normal" in ran.last_line
    assert {path.name: path.read_bytes() for path in (tmp_path / "cache").iterdir()} == before


def test_refresh_measures_again_and_loses_nothing(generate: Generate, tmp_path: Path) -> None:
    first, once = requests(generate(effort="quick")), trials(tmp_path)
    ran = generate(effort="quick", cache_mode="refresh")
    assert "0 of 3 tasks are known, 3 are stale (what was stored before this refresh does not count: 3" in ran.err
    assert requests(ran)[0] >= first[0]
    assert trials(tmp_path) >= 2 * once
    assert requests(generate(effort="quick"))[0] == 0


def test_what_the_system_knows_is_taken_from_there_unless_the_user_knows_better(
    generate: Generate, tmp_path: Path
) -> None:
    def run(folder: Path, **config: Any) -> Generated:
        ran = generate(effort="quick", **({"performance_cache_dir": str(folder)} | config))
        assert ran.code == 0, ran.err
        return ran

    system, mine = tmp_path / "system", tmp_path / "mine"
    run(system)
    ran = run(mine, system_performance_cache_dir=str(system))
    assert "3 tasks taken from it" in ran.err
    assert requests(ran) == (0, 3)  # programs are not taken from elsewhere
    (file,) = mine.glob("*.sqlite")
    with PerformanceCache.open_readonly(file) as cache:
        assert [one.source for one in cache.origins()] == [str(system / file.name)]
    assert "0 tasks taken from it" in run(mine, system_performance_cache_dir=str(system)).err
    assert "the file for this device does not exist" in run(mine, system_performance_cache_dir=str(tmp_path)).err


@pytest.mark.slow
@pytest.mark.parametrize("key", ["performance_cache_dir", "kernel_repo_path"])
def test_a_cache_in_a_folder_that_others_can_write_to_is_not_written(
    generate: Generate, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUTUNE_TRUSTED_FOLDERS", raising=False)
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    keys: dict[str, Any] = {"performance_cache_dir": str(tmp_path / "mine"), key: str(folder)}
    ran = generate(effort="quick", **keys)
    assert ran.code == 7
    (line,) = (line for line in ran.err.splitlines() if "error" in line)
    assert f"it lies in {folder}, which can be written by every user; " in line
    assert "GPUTUNE_TRUSTED_FOLDERS" in line
    assert not list(folder.iterdir())
    folder.chmod(0o755)
    assert generate(effort="quick", **keys).code == 0


@pytest.mark.parametrize("key", ["performance_cache_dir", "kernel_repo_path"])
def test_a_copied_cache_brings_measurements_and_no_code(
    generate: Generate, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which its new owner compiles once, and then has as his own."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"

    def run(folder: Path, home: str) -> tuple[Generated, bytes]:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / home))
        keys: dict[str, Any] = {"performance_cache_dir": str(folder), key: str(folder)}
        ran = generate(effort="quick", **keys)
        assert ran.code == 0, ran.err
        return ran, ran.context.read_bytes()

    run(theirs, "their home")
    shutil.copytree(theirs, mine)
    ran, made = run(mine, "my home")
    assert "3 compiled programs in the cache are from another installation" in ran.err
    assert requests(ran) == (0, 3)
    ran, context = run(mine, "my home")
    assert "another installation" not in ran.err
    assert requests(ran) == (0, 0)
    assert context == made


def test_a_generation_finishes_although_nothing_more_can_be_kept(generate: Generate, tmp_path: Path) -> None:
    with no_room(160_000):
        ran = generate(effort="quick")
    assert ran.code == 0, ran.err
    assert ran.err.count("from now on nothing is stored") == 1
    assert ran.context.exists()
    (file,) = (tmp_path / "cache").glob("*.sqlite")
    with PerformanceCache.open(file) as cache:
        assert cache.problems() == []
        assert cache.tasks()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"cache_mode": "frozen", "invalidate_performance_cache": True}, "invalidate_performance_cache has no meaning"),
        ({"cache_mode": "refresh", "system_performance_cache_dir": "x"}, "system_performance_cache_dir has no meaning"),
        ({"cache_mode": "off", "invalidate_kernel_repo": True}, "name one with kernel_repo_path"),
        ({"cache_mode": "sometimes"}, 'cache_mode must be one of use, off, refresh, frozen, not "sometimes"'),
    ],
)
def test_what_a_mode_could_only_ignore_is_refused(generate: Generate, keys: dict[str, Any], says: str) -> None:
    ran = generate(effort="quick", **keys)
    assert ran.code == 2
    assert says in ran.last_line


def test_a_tier_of_ones_own_has_its_file(generate: Generate, tmp_path: Path) -> None:
    ran = generate("--device_tier", "our-boards", effort="quick")
    assert ran.code == 0, ran.err
    assert [path.name for path in (tmp_path / "cache").glob("*.sqlite")] == ["our-boards.sqlite"]
    ran = generate("--device_tier", "../other", effort="quick")
    assert ran.code == 2
    assert "'../other' is not a tier name" in ran.last_line
