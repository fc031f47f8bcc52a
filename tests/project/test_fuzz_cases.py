"""Test a few cases of the scripts/fuzz commands that change files, each time the same, and how to repeat a case."""

import argparse
import random
import resource
from collections import Counter
from pathlib import Path

import pytest

from gputune.runtime.context.format import context_of
from gputune.runtime.context.stored import Extent
from gputune.runtime.execution import loading
from stress.fuzz import cache, cases, context, ep_context, package, profile
from stress.fuzz.mutations import mutated_bytes, mutated_value
from stress.sources import fuzzing as sources


def test_changed_context_binaries_are_refused_in_one_line_or_do_what_they_say(tmp_path: Path) -> None:
    ended = Counter(context.examine(cases.chance_of(0, number), tmp_path) for number in range(80))
    assert {"MalformedHeader", "ChecksumMismatch", "ran"} <= ended.keys()


def test_changed_packages_are_refused_in_one_line_or_give_what_they_say(tmp_path: Path) -> None:
    ended = Counter(package.examine(cases.chance_of(0, number), tmp_path) for number in range(150))
    assert {"MalformedPackage", "MalformedHeader", "ChecksumMismatch"} <= ended.keys()
    assert package.end_of(package.original(), tmp_path, same=True) == "ran"
    fields, sections = package.parts(package.original())
    assert package.joined(fields, sections) == package.original()


def test_sources_hold_listed_assembly_only_or_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = sources.prepared(tmp_path)
    ended = Counter(sources.examine(cases.chance_of(0, number), folder) for number in range(24))
    assert ended.keys() == {"refused", "accepted", "with assembly"}


@pytest.mark.parametrize(
    "read",
    [
        'asm("x");',
        'asm X("x" ::: "memory");',
        '__asm__ goto("fence.acq_rel.gpu;" ::: "memory");',
        'asm("fence.acq_rel.gpu;" ".incbin" ::: "memory");',
        'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x));',
        'asm("fence.acq_rel.gpu;" ::: "memory"); "x";',
        "asm x;",
    ],
)
def test_assembly_that_the_filter_overlooks_is_found(read: str) -> None:
    assert sources.check('asm volatile ("fence.acq_rel.gpu;" ::: "memory");') == "with assembly"
    with pytest.raises(cases.Broken, match="was accepted"):
        sources.check(read)


@pytest.mark.slow
def test_changed_caches_and_exports_are_refused_in_one_line_or_used(tmp_path: Path) -> None:
    ended = Counter(cache.examine(cases.chance_of(0, number), tmp_path) for number in range(15))
    assert {"CacheError", "used", "taken in"} <= ended.keys()


@pytest.mark.slow
def test_changed_files_with_ep_context_nodes_are_refused_in_one_line_or_read(tmp_path: Path) -> None:
    folder = ep_context.prepared(tmp_path)
    ended = Counter(ep_context.examine(cases.chance_of(0, number), folder) for number in range(3000))
    assert ended.keys() == {"MalformedEpContext", "read", "read in parts", "read, not by protobuf"}
    assert ended["read"] > 500


@pytest.mark.slow
def test_changed_logs_and_schematics_are_refused_in_one_line_or_shown(tmp_path: Path) -> None:
    ended = Counter(profile.examine(cases.chance_of(0, number), tmp_path) for number in range(30))
    assert {"ConfigError", "shown"} <= ended.keys() <= {"ConfigError", "shown", "ConfigError or shown"}


def test_a_log_that_is_put_back_unchanged_is_shown(tmp_path: Path) -> None:
    assert profile.packed(profile.records()) == profile.original_log()
    assert profile.ended(profile.original_log(), profile.original_schematic(), tmp_path) == {"shown"}


def test_the_fields_of_a_file_that_are_put_back_unchanged_give_the_same_file(tmp_path: Path) -> None:
    for whole in ep_context.originals(ep_context.prepared(tmp_path)):
        assert ep_context.encoded(ep_context.decoded(whole, ep_context.NESTED), None) == whole


def test_the_context_that_is_changed_runs_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []

    def executor_on(*words: object, **options: object) -> object:
        executor = loading.executor_on(*words, **options)  # type: ignore[arg-type]
        warned.extend(executor.warnings)
        assert (executor.runs is None) == (executor.graph.name == "plain")
        return executor

    monkeypatch.setattr(context, "executor_on", executor_on)
    with context_of(memoryview(context.original()), "original") as file:
        assert context.run_graphs(file) == "ran"
    assert warned == []


def test_a_header_that_is_put_back_unchanged_gives_a_file_with_the_same_contents() -> None:
    whole = context.original()
    again = context.with_header(whole, context.header_of(whole))
    views = [context_of(memoryview(content), "file") for content in (whole, again)]
    assert context.contents(views[0]) == context.contents(views[1])
    assert context.with_header(again, context.header_of(again)) == again


def test_what_passes_unnoticed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules would see a checksum that is not checked, and an error that nothing names."""
    monkeypatch.setattr(Extent, "checked", lambda extent, sha256, damaged: extent.read())
    with pytest.raises(cases.Broken, match="it holds something else"):
        for number in range(200):
            context.examine(cases.chance_of(0, number), tmp_path)
    with pytest.raises(cases.Broken, match="not one printable line"):
        cases.check_line(ValueError("two\nlines"))
    with pytest.raises(cases.Broken, match="5000 characters"):
        cases.check_line(ValueError("x" * 5000))


def test_a_case_is_its_seed_and_number_and_a_failure_says_how_to_repeat_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 1 << 46
    monkeypatch.setattr(cases, "MOST_BYTES", limit)
    before = resource.getrlimit(resource.RLIMIT_AS)
    drawn: list[float] = []

    def examine(chance: random.Random) -> str:
        assert resource.getrlimit(resource.RLIMIT_AS)[0] == limit
        drawn.append(chance.random())
        if len(drawn) == 3:
            raise KeyError("not found")
        return "fine"

    options = argparse.Namespace(seed=7, count=4, case=None)
    assert cases.explore("context", options, examine) == 1
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    said = capsys.readouterr().out
    assert "KeyError: 'not found'" in said
    assert "repeat with: scripts/fuzz context --seed 7 --case 2\n" in said
    assert "4 cases, 1 broken" in said and "{'fine': 3}" in said
    assert cases.explore("context", argparse.Namespace(seed=7, count=4, case=2), examine) == 0
    assert drawn[-1] == drawn[2]


def test_changes_are_decided_by_chance_alone_and_leave_the_original() -> None:
    value = {"a": [1, {"b": "text"}], "c": {}}
    changed = [mutated_value(value, random.Random(number)) for number in range(50)]
    assert repr(changed) == repr([mutated_value(value, random.Random(number)) for number in range(50)])
    assert value == {"a": [1, {"b": "text"}], "c": {}}
    assert sum(one != value for one in changed) > 40
    assert mutated_value([], random.Random(1)) == []
    texts = [mutated_bytes(b"0123456789" * 10, random.Random(number)) for number in range(50)]
    assert texts == [mutated_bytes(b"0123456789" * 10, random.Random(number)) for number in range(50)]
    assert mutated_bytes(b"", random.Random(3)) is not None
