"""Test measurements that leave a file and come back: exports, repeated imports, and winners that disagree."""

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import PLACES, CacheError, ChainRecord, PerformanceCache, WinnerRecord
from gputune.cache.exchange import from_json, to_json
from gputune.client.errors import Overwrites

from .conftest import FAILED, TASK, VALIDITY, WINNER, edit, run, trial

OPEN_CLIP = dataclasses.replace(TASK, problem={"clip": [float("-inf"), 6.0], "n": 3})
CHAIN = ChainRecord({TASK.digest: WINNER}, {TASK.digest: 12.5}, 3.0, {"gain": 1.1})


def filled(path: Path, winner: WinnerRecord = WINNER) -> Path:
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(8), FAILED])
        cache.conclude(TASK, VALIDITY, winner)
        cache.store_trials(OPEN_CLIP, VALIDITY, [trial(1)])
        cache.conclude_chain("f" * 64, CHAIN)
    return path


def contents(path: Path) -> Any:
    with PerformanceCache.open_readonly(path) as cache:
        return cache.contents()


def test_an_export_comes_back_equal(tmp_path: Path) -> None:
    before = contents(filled(tmp_path / "a.sqlite"))
    after = from_json(to_json(before, "1", "now"), "here")
    assert after == before
    assert after.entries[1].task.digest == OPEN_CLIP.digest


def test_an_export_is_strict_json_and_bare_infinities_are_read_too(tmp_path: Path) -> None:
    before = contents(filled(tmp_path / "a.sqlite"))
    text = to_json(before, "1", "now")
    assert '"-Infinity"' in text
    assert from_json(text.replace('"-Infinity"', "-Infinity"), "here") == before


PROGRAM = "d" * 64, b"native code"
SECRET = b"s" * 32


def with_program(path: Path) -> Path:
    """A file with a program that this installation has compiled."""
    filled(path)
    with PerformanceCache.open(path, secret=SECRET) as cache:
        cache.keep_program(*PROGRAM)
        assert cache.program_of(PROGRAM[0]) == PROGRAM[1]
    return path


def programs(path: Path) -> int:
    with PerformanceCache.open_readonly(path, secret=SECRET) as cache:
        return cache.makers().total()


def test_programs_are_neither_exported_nor_imported(tmp_path: Path) -> None:
    file, folder = tmp_path / "export.json", tmp_path / "there"
    assert run("export", with_program(tmp_path / "a.sqlite"), "--output", file).exit_code == 0
    found = json.loads(file.read_text())
    assert "binary" not in file.read_text() and PROGRAM[0] not in file.read_text()
    code = base64.b64encode(PROGRAM[1]).decode()
    for winner in (found["entries"][0]["winner"], found["chains"][0]["winners"][TASK.digest]):
        winner["binary"] = code  # as in exports of version 1
    file.write_text(json.dumps(found | {"version": 1}))
    assert run("import", file, "--performance_cache_dir", folder).exit_code == 0
    (made,) = folder.glob("*.sqlite")
    assert contents(made) == contents(tmp_path / "a.sqlite")
    assert programs(made) == 0
    assert code.encode() not in made.read_bytes() and PROGRAM[1] not in made.read_bytes()


def test_programs_of_merged_files_are_left_out_and_own_ones_stay(tmp_path: Path) -> None:
    source, into = with_program(tmp_path / "source.sqlite"), tmp_path / "into.sqlite"
    assert run("merge", source, "--into", into).exit_code == 0
    assert programs(into) == 0
    assert run("merge", into, "--into", source).exit_code == 0
    assert programs(source) == 1


def test_a_chain_without_a_digest_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.sqlite")
    edit(path, "UPDATE chain SET digest = x'00ff'")
    result = run("export", path, "--output", tmp_path / "e.json")
    assert result.exit_code == 0, result.output
    assert "skipped 1 malformed chains, the first because digest is b'" in result.output
    assert from_json((tmp_path / "e.json").read_text(), "here").chains == {}


def test_export_is_strict_json_and_import_finds_the_tier(tmp_path: Path) -> None:
    file, folder = tmp_path / "export.json", tmp_path / "there"
    assert run("export", filled(tmp_path / "a.sqlite"), "--output", file).exit_code == 0

    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(file.read_text(), parse_constant=refuse)
    result = run("import", file, "--performance_cache_dir", folder)
    assert (
        "3 trials added, 0 known already, 1 winners and 1 choices between whole contexts added, 0 conflicts"
        in result.output
    )
    (made,) = folder.glob("*.sqlite")
    assert made.stem == "pthread-skylake-avx512-amd-epyc-cu2"
    assert contents(made) == contents(tmp_path / "a.sqlite")
    assert "0 trials added, 3 known already, 0 winners" in run("import", file, "--performance_cache_dir", folder).output
    with PerformanceCache.open_readonly(made) as cache:
        assert [(one.source, one.trials) for one in cache.origins()] == [(str(file), 3)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda found: found.update(format="another"), "its format is 'another'"),
        (lambda found: found.update(version=9), "version 9; this gputune reads 1 and 2"),
        (lambda found: found.update(entries={}), "'entries' is not a list"),
        (
            lambda found: found["entries"][0]["task"].update(op="Other"),
            "entries[0]: task_digest does not match its key",
        ),
        (lambda found: found["entries"][0]["trials"][0].update(status="fine"), "entries[0]: status is 'fine'"),
        (lambda found: found["entries"][0]["winner"].update(source="x"), "entries[0]: "),
        (lambda found: found["entries"][0].pop("winner"), "entries[0]: 'winner' is missing"),
        (lambda found: found["entries"][0]["trials"][0].update(stored_at=1e300), "after the year 9999"),
        (lambda found: found["chains"][0].update(stored_at=2**63), "after the year 9999"),
        (lambda found: found["chains"][0].update(launch_ns=-1), "chains[0]: launch_ns is -1"),
    ],
)
def test_a_changed_export_is_refused_where_it_was_changed(tmp_path: Path, change: Any, says: str) -> None:
    found = json.loads(to_json(contents(filled(tmp_path / "a.sqlite")), "1", "now"))
    change(found)
    with pytest.raises(CacheError) as caught:
        from_json(json.dumps(found), "e.json")
    assert says in str(caught.value)


def test_what_two_devices_have_measured_goes_back_to_each(tmp_path: Path) -> None:
    other = dataclasses.replace(VALIDITY, device_name="Apple M2", vendor="Apple")
    both = tmp_path / "both.sqlite"
    with PerformanceCache.open(both) as cache:
        for number, place in enumerate((VALIDITY, other)):
            cache.store_trials(TASK, place, [trial(number)])
            cache.conclude(TASK, place, WINNER)
            chain = dataclasses.replace(CHAIN, measured={PLACES: [place.digest]})
            cache.conclude_chain(f"{number:064x}", chain)
    assert run("export", both, "--output", tmp_path / "both.json").exit_code == 0
    assert run("import", tmp_path / "both.json", "--performance_cache_dir", tmp_path / "back").exit_code == 0
    files = sorted((tmp_path / "back").glob("*.sqlite"))
    assert [file.stem for file in files] == ["apple-m2-cu2", "pthread-skylake-avx512-amd-epyc-cu2"]
    assert [list(contents(file).chains) for file in files] == [[f"{1:064x}"], [f"{0:064x}"]]


def test_of_two_winners_the_better_founded_one_stays(tmp_path: Path) -> None:
    weak = filled(tmp_path / "weak.sqlite")
    other = dataclasses.replace(WINNER, configuration={"MWG": 16, "VWN": 4}, effort="full")
    strong = filled(tmp_path / "strong.sqlite", other)
    for into, source in ((weak, strong), (strong, weak)):
        with PerformanceCache.open(into) as cache:
            merged = cache.take_in(contents(source), str(source))
            winner = cache.winner_of(TASK, VALIDITY)
        (conflict,) = merged.conflicts
        assert (conflict.kept.effort, conflict.dropped.effort) == ("full", "quick")
        assert winner is not None
        assert winner.configuration == other.configuration
        assert merged.trials == 3  # measured at other times, so they are others
        with PerformanceCache.open(into) as cache:
            assert cache.take_in(contents(source), str(source)).trials == 0
        into.unlink()
        filled(into, WINNER if into == weak else other)


def test_merging_lists_conflicts_and_refuses_itself(tmp_path: Path) -> None:
    a = filled(tmp_path / "a.sqlite")
    b = filled(tmp_path / "b.sqlite", dataclasses.replace(WINNER, configuration={"MWG": 16}, trials={"ok": 1}))
    result = run("merge", b, "--into", a)
    assert result.exit_code == 0
    assert "kept MWG=8 VWN=16 (1 us, quick), dropped MWG=16" in result.output
    assert isinstance(run("merge", a, "--into", a).exception, Overwrites)
