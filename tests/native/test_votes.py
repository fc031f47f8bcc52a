"""Test votes of several processes: the strongest live vote is in force, and after the last the originals are back."""

import json
import os
import signal
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.runtime.power.fake_trees import LATENCY, NO_REQUEST_US, TREES, make_tree
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.runtime.power.profiles.settings import PHASES
from gputune.runtime.power.records import NOTHING, Corner, Corners, PowerMode, Vote
from tests.native.compiling import sanitizers
from tests.native.test_threads import SANITIZED
from tests.native.voting import (
    ADRENO,
    ALL,
    CPU,
    MALI,
    Voting,
    contents,
    files,
    has_latency,
    is_in_force,
    place,
    planned,
    start,
    stored,
    strongest,
    table,
    voting_program,
)
from tests.waiting import becomes

ASKING = [name for name in PRESETS if name != "system_settings"]
CORNERS = st.builds(Corners, *[st.sampled_from(list(Corner))] * 3)
VOTES = st.builds(
    Vote, CORNERS, CORNERS, st.booleans(), st.none() | st.integers(10, 3000), st.sampled_from(list(PowerMode)),
    st.booleans(),
)  # fmt: skip


@pytest.fixture(scope="module")
def program(c_compiler: None) -> Path:
    return voting_program(sanitizers())


@pytest.fixture
def folder() -> Iterator[Path]:
    with place() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("families", "device"),
    [(("cpufreq",), CPU), (("pstate",), CPU), (("kgsl", "memory", "mali"), ADRENO), (tuple(TREES), ALL)],
)
def test_presets_do_what_is_planned(
    program: Path, folder: Path, families: Sequence[str], device: Sequence[str]
) -> None:
    root = make_tree(folder / "root", *families)
    before, voting = contents(root), Voting(program, root, device)
    for number, preset in enumerate(ASKING):
        named = preset if number % 2 else f"SNPE_PERFORMANCE_PROFILE_{preset.upper()}"
        assert voting.tell("open", word=named) == ""
        for phase in PHASES:
            for moment, command in (("start", "begin"), ("done", "end")):
                voting.tell(command, word=phase)
                vote = start(preset, phase, moment)  # type: ignore[arg-type]
                assert becomes(partial(is_in_force, folder, vote))
                voting.tell("sync")
                assert contents(root) == planned(folder, families, vote, device), (preset, phase, moment)
                assert has_latency(root, vote)
        assert voting.told() == []
        voting.tell("close")
        assert contents(root) == before
        assert files(folder) == []
        assert int.from_bytes((root / LATENCY).read_bytes(), "little") == NO_REQUEST_US
    voting.end()


def test_presets_that_are_none(program: Path, folder: Path) -> None:
    voting = Voting(program, make_tree(folder / "root", "cpufreq"))
    assert voting.tell("open", word="quick") == f"there is no perf profile 'quick', only {', '.join(PRESETS)}"
    wrong = f"{NOTHING.places[0]},11{',0' * 8}"
    assert voting.tell("open", word=wrong) == "place 1 of a vote is from 0 to 9, not 11"
    assert voting.tell("open", word="system_settings") == ""
    voting.tell("begin", word="execute")
    voting.tell("sync")
    voting.tell("close")
    assert files(folder) == []
    voting.end()


@pytest.mark.slow
@settings(max_examples=20)
@given(
    families=st.sampled_from([("kgsl", "memory"), ("memory", "xe"), ("cpufreq",)]),
    steps=st.lists(st.tuples(st.integers(0, 3), st.just(NOTHING) | VOTES, st.booleans()), min_size=1, max_size=8),
)
def test_the_strongest_of_all_is_in_force(
    program: Path, families: Sequence[str], steps: list[tuple[int, Vote, bool]]
) -> None:
    """Of two instances of each of two processes, which vote, close and are killed in any order."""
    with place() as folder:
        root = make_tree(folder / "root", *families)
        before, live = contents(root), dict[int, Vote]()
        processes = [Voting(program, root) for _ in range(2)]
        processes[1].vote(NOTHING, 7)  # looks for what the other leaves
        for who, vote, kills in steps:
            process, number = divmod(who, 2)
            if kills and process == 0:
                processes[0].end(kill=True)
                processes[0] = Voting(program, root)
                live = {other: cast for other, cast in live.items() if other >= 2}
            else:
                processes[process].tell("close", number)
                processes[process].vote(vote, number)
                live[who] = vote
            in_force = strongest(live.values())
            if in_force.empty:
                assert becomes(lambda: files(folder) == []) and contents(root) == before
            else:
                assert becomes(partial(is_in_force, folder, in_force))
                wanted = planned(folder, families, in_force)
                assert becomes(lambda wanted=wanted: contents(root) == wanted)  # type: ignore[misc]
        for each in processes:
            each.end()
        assert contents(root) == before
        assert files(folder) == []


def test_the_done_vote_of_one_instance_decides_what_another_runs_at(program: Path, folder: Path) -> None:
    """The two instances of the seed: a fast one, which has run, and a slow one, which runs behind it."""
    root = make_tree(folder / "root", "mali")
    voting, slow = Voting(program, root), start("low_power_saver")
    voting.tell("open", 1, slow)
    for done in (Vote(core=Corners(target=Corner.NOM), dcvs=False), NOTHING):
        voting.tell("open", 0, "burst")
        voting.tell("begin", 0, "execute")
        voting.tell("begin", 1, "execute")
        voting.tell("sync")
        assert is_in_force(folder, strongest([start("burst"), slow]))
        voting.tell("set", 0, done)  # while it runs
        voting.tell("end", 0, "init")
        voting.tell("sync")
        assert is_in_force(folder, strongest([done, slow]))
        voting.tell("end", 1, "execute")
        voting.tell("close", 0)
    voting.end()
    assert files(folder) == []


def test_hysteresis_holds_the_start_vote(program: Path, folder: Path) -> None:
    """A burst holds it for 300 ms; the done vote follows by itself."""
    voting = Voting(program, make_tree(folder / "root", "mali"))
    voting.vote("burst")
    voting.tell("end", word="execute")
    assert becomes(lambda: is_in_force(folder, start("burst", moment="done")))
    voting.tell("begin", word="execute")
    voting.tell("sync")
    assert is_in_force(folder, start("burst"))
    voting.tell("set", word="balanced")
    voting.tell("end", word="init")
    assert becomes(lambda: is_in_force(folder, start("balanced", "init", "done")))
    voting.tell("set", word="power_saver")  # while nothing runs it counts at once
    assert becomes(lambda: is_in_force(folder, start("power_saver", moment="done")))
    voting.end()


def test_the_votes_of_a_killed_process_end(program: Path, folder: Path) -> None:
    """While another votes, too, for less; and what the last one leaves is brought back by the next that looks."""
    root = make_tree(folder / "root", "cpufreq")
    before = contents(root)
    other, killed = (Voting(program, root) for _ in range(2))
    other.vote("balanced")
    killed.vote("burst")
    found = table(folder)
    assert found is not None and len(found["votes"]) == 2
    killed.end(kill=True)
    wanted = planned(folder, ["cpufreq"], start("balanced"))
    assert becomes(lambda: contents(root) == wanted)
    other.end(kill=True)
    assert contents(root) == wanted
    last = Voting(program, root)
    last.tell("open", word="balanced")
    assert becomes(lambda: files(folder) == []) and contents(root) == before
    last.end()


@pytest.mark.parametrize("survives", [True, False], ids=["a survivor", "the next process"])
def test_controls_go_back_whichever_write_a_process_is_killed_at(program: Path, folder: Path, survives: bool) -> None:
    root = make_tree(folder / "root", "kgsl", "memory")
    first = contents(root)
    survivor = Voting(program, root)
    if survives:
        survivor.vote("balanced")
    else:
        survivor.tell("open", word="balanced")
    in_force, kills = contents(root), 0
    while True:
        child = Voting(program, root)
        child.tell("kill", kills)
        child.tell("open", word="burst")
        child.tell("open", 1, "low_power_saver")
        try:
            for command, number in (("begin", 0), ("sync", 0), ("begin", 1), ("close", 0), ("close", 1)):
                child.tell(command, number, "execute")
        except BrokenPipeError:
            pass
        child.process.communicate()
        if child.process.returncode != -signal.SIGKILL:
            break
        kills += 1
        assert becomes(lambda: contents(root) == in_force), f"killed at write {kills}"
    assert kills > 10
    survivor.end()
    assert contents(root) == first and files(folder) == []


# --- the files ----------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(place_in=st.integers(0, 400), garbage=st.binary(max_size=8), which=st.sampled_from(["votes", "originals"]))
def test_a_broken_file_begins_anew(program: Path, place_in: int, garbage: bytes, which: str) -> None:
    with place() as folder:
        root = make_tree(folder / "root", "cpufreq")
        first, second = (Voting(program, root) for _ in range(2))
        first.vote("balanced")
        (broken,) = (path for path in files(folder) if path.suffix == f".{which}")
        first.end(kill=True)
        content = broken.read_bytes()
        broken.write_bytes(content[:place_in] + garbage + content[place_in + len(garbage) :][: 100 - place_in])
        second.vote("burst")
        assert is_in_force(folder, start("burst"))
        second.end()
        assert files(folder) == []


WRONG_VOTES = {
    "no JSON": "\0" * 100,
    "deep": "[" * 100_000,
    "a short list": {"1:1:1": {**stored(NOTHING), "bus": [1, 2]}},
    "a corner": {"1:1:1": {**stored(NOTHING), "bus": [1, 2, 99]}},
    "a mode": {"1:1:1": {**stored(NOTHING), "power_mode": "TURBO"}},
    "null": {"1:1:1": None},
    "a list": [],
}


@pytest.mark.parametrize("wrong", WRONG_VOTES)
def test_broken_votes_start_anew_and_the_journal_stays(program: Path, folder: Path, wrong: str) -> None:
    root = make_tree(folder / "root", "mali")
    before, voting = contents(root), Voting(program, root)
    voting.vote("burst")
    found = table(folder)
    content = WRONG_VOTES[wrong]
    text = content if isinstance(content, str) else canonical({**(found or {}), "votes": content})
    next(path for path in files(folder) if path.suffix == ".votes").write_text(text)
    other = Voting(program, root)
    other.vote("balanced")
    assert any("starting anew" in line for line in other.told())
    assert becomes(lambda: len((table(folder) or {"votes": ()})["votes"]) == 2)
    other.end()
    voting.end()
    assert contents(root) == before and files(folder) == []


def canonical(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def test_what_was_written_before_the_machine_started_again_is_ignored(program: Path, folder: Path) -> None:
    root = make_tree(folder / "root", "mali")
    first, second = (Voting(program, root) for _ in range(2))
    first.vote("burst")
    for path in files(folder):
        if path.suffix != ".lock":
            path.write_text(canonical({**json.loads(path.read_text()), "boot": "another"}))
    changed = contents(root)
    second.vote("balanced")
    assert is_in_force(folder, start("balanced")) and second.told() == []
    first.end(kill=True)
    second.end()
    assert contents(root) == changed  # it counts as what was there before any vote


HOSTILE = {
    "another file": ("/etc/hostname", "overwritten"),
    "a control of another device": ("{root}/sys/foreign", "overwritten"),
    "escapes": ("{root}/sys/\\u0041\\ud800\\\\", "\\u0000\\n\\t"),
    "a long path": ("/" + "x" * 5000, "1"),
    "a long content": ("{root}/sys/class/devfreq/dmc/min_freq", "1" * 5000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_journal_is_believed_for_the_devices_own_controls_only(program: Path, folder: Path, name: str) -> None:
    root = make_tree(folder / "root", "memory", "mali")
    (root / "sys/foreign").write_text("left alone")
    before, voting = contents(root), Voting(program, root)
    voting.vote("burst")
    journal = next(path for path in files(folder) if path.suffix == ".originals")
    voting.end(kill=True)
    path, content = HOSTILE[name]
    entry = f'"{path.format(root=root)}":"{content}"'
    journal.write_text(journal.read_text().replace('"originals":{', f'"originals":{{{entry},'))
    hostname = Path("/etc/hostname").read_bytes()
    other = Voting(program, root)
    other.tell("open", word="balanced")
    assert becomes(lambda: files(folder) == [])
    assert contents(root) == before and Path("/etc/hostname").read_bytes() == hostname
    other.end()


@pytest.mark.parametrize("suffix", [".originals", ".votes"])
def test_files_that_cannot_be_read_are_not_taken_for_none(program: Path, folder: Path, suffix: str) -> None:
    root = make_tree(folder / "root", "mali")
    voting = Voting(program, root)
    voting.vote("burst")
    voting.end(kill=True)
    unreadable = next(path for path in files(folder) if path.suffix == suffix)
    content = unreadable.read_bytes()
    unreadable.unlink()
    unreadable.mkdir()
    kept = {path: path.read_bytes() for path in files(folder) if path.is_file()}
    other = Voting(program, root)
    other.vote("balanced")
    (line,) = other.told()
    assert "clocks stay as they are if this process is killed" in line and "Is a directory" in line
    assert {path: path.read_bytes() for path in files(folder) if path.is_file()} == kept
    other.end(kill=True)
    unreadable.rmdir()
    unreadable.write_bytes(content)
    last = Voting(program, root)
    last.tell("open", word="balanced")
    assert becomes(lambda: files(folder) == [])
    last.end()


def test_a_journal_that_has_gone_is_written_anew(program: Path, folder: Path) -> None:
    root = make_tree(folder / "root", "mali")
    before, voting = contents(root), Voting(program, root)
    voting.vote("burst")
    (journal,) = (path for path in files(folder) if path.suffix == ".originals")
    whole = journal.read_bytes()
    for path in files(folder):
        path.unlink()
    assert becomes(journal.exists) and journal.read_bytes() == whole
    voting.end()
    assert contents(root) == before


@pytest.mark.parametrize("kind", ["a link", "a file", "missing above", "open to others", "a full disk"])
def test_a_folder_that_does_not_work_is_one_warning(program: Path, folder: Path, kind: str) -> None:
    """Votes are of one process only then; its instances still count together."""
    root, votes = make_tree(folder / "root", "mali"), folder / "gputune-power"
    before, elsewhere = contents(root), folder / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if kind == "a link":
        votes.symlink_to(elsewhere)
    elif kind == "a file":
        votes.touch()
    elif kind == "open to others":
        votes.mkdir(mode=0o755)
    runtime = {"XDG_RUNTIME_DIR": str(folder / "missing")} if kind == "missing above" else {}
    voting = Voting(program, root, **runtime)
    if kind == "a full disk":
        voting.tell("fail", 28, ".originals.new")
    voting.vote("burst", 0)
    voting.vote("low_power_saver", 1)
    assert contents(root) == planned(folder, ["mali"], strongest([start("burst"), start("low_power_saver")]))
    voting.tell("close", 0)
    assert contents(root) == planned(folder, ["mali"], start("low_power_saver"))
    voting.tell("close", 1)
    assert contents(root) == before
    (line,) = voting.told()
    assert "clocks stay as they are if this process is killed" in line
    voting.end()
    assert list(elsewhere.iterdir()) == []
    assert kind != "open to others" or stat.S_IMODE(votes.stat().st_mode) == 0o755


def test_the_journal_stays_while_a_live_process_writes(program: Path, folder: Path) -> None:
    """Older versions leave the lock while their slow writes go on, and say so."""
    root = make_tree(folder / "root", "mali")
    voting = Voting(program, root)
    voting.vote("burst")
    votes = next(path for path in files(folder) if path.suffix == ".votes")
    started = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    busy = f"{os.getpid()}:{started}:1"
    votes.write_text(votes.read_text().replace('"busy":[]', f'"busy":["{busy}"]'))
    voting.tell("close")
    assert [path.suffix for path in files(folder)] == [".lock", ".originals", ".votes"]
    found = table(folder)
    assert found is not None and (found["busy"], found["votes"]) == ([busy], {})
    votes.write_text(votes.read_text().replace(f'"{busy}"', ""))
    voting.tell("open", word="balanced")  # looks
    assert becomes(lambda: files(folder) == [])
    voting.end()


@pytest.mark.parametrize("flags", [pytest.param((), id="plain"), *SANITIZED])
def test_threads_may_vote_at_once(c_compiler: None, folder: Path, flags: tuple[str, ...]) -> None:
    root = make_tree(folder / "root", *TREES)
    before, voting = contents(root), Voting(voting_program(flags), root, MALI)
    for number, preset in enumerate(("balanced", "burst")):
        voting.tell("open", number, preset)
        voting.tell("storm", number)
    voting.tell("close", 0)
    voting.tell("close", 1)
    voting.end()
    assert contents(root) == before
