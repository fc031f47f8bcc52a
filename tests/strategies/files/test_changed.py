"""Test that changed files of every kind are refused in one line, or do what they say."""

import resource
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings

from gputune.client.errors import ModelError
from gputune.client.generation.model_check import check_model
from gputune.runtime.context.format import context_of
from gputune.runtime.context.stored import Extent
from tests.client.hostile_models import hostile_models
from tests.strategies.changes import Broken, cases, check_line, mutated_bytes, mutated_value
from tests.strategies.files import caches, contexts, ep_contexts, logs, packages, sources

MOST_BYTES = 6 << 30
"""Of address space that a case may take beside what the process has: what needs more fails with a MemoryError."""


@pytest.fixture
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + MOST_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def examine_model(chance: Random, folder: Path) -> str:
    """Return how a hostile or broken model ends."""
    path = folder / "model.onnx"
    path.write_bytes(next(hostile_models(chance.getrandbits(64))).content)
    try:
        return "lowered" if check_model(path, {}).runs_wholly else "refused"
    except ModelError as error:
        assert "\n" not in error.message
        return "refused"


def examine_nodes(chance: Random, folder: Path) -> str:
    """Return how a changed file with EPContext nodes ends."""
    return ep_contexts.examine(chance, folder / "home" if any(folder.iterdir()) else ep_contexts.prepared(folder))


def examine_source(chance: Random, folder: Path) -> str:
    """Return how a changed source ends."""
    return sources.examine(chance, sources.prepared(folder))


KINDS: dict[str, tuple[Callable[[Random, Path], str], int, set[str]]] = {
    "caches": (caches.examine, 30, {"CacheError", "used"}),
    "contexts": (contexts.examine, 150, {"MalformedHeader", "ChecksumMismatch", "ran"}),
    "models": (examine_model, 40, {"refused", "lowered"}),
    "nodes": (examine_nodes, 600, {"MalformedEpContext", "read", "read in parts", "read, not by protobuf"}),
    "packages": (packages.examine, 200, {"MalformedPackage", "MalformedHeader", "ChecksumMismatch"}),
    "logs": (logs.examine, 25, {"ConfigError", "shown"}),
    "sources": (examine_source, 24, {"refused", "accepted", "with assembly"}),
}
"""By the kind of a file: what examines a changed one, how many there are in a run, and some ways in which they end."""


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_file_is_refused_in_one_line_or_does_what_it_says(
    tmp_path: Path, little_memory: None, kind: str
) -> None:
    examine, count, wanted = KINDS[kind]
    ended = Counter[str]()

    @settings(max_examples=count)
    @given(case=cases)
    def examined(case: int) -> None:
        ended[examine(Random(case), tmp_path)] += 1

    examined()
    assert wanted <= ended.keys() or settings.get_current_profile_name() == "exploring"


def test_a_package_is_what_it_was_made_of(tmp_path: Path) -> None:
    assert packages.end_of(packages.original(), tmp_path, same=True) == "ran"
    fields, sections = packages.parts(packages.original())
    assert packages.joined(fields, sections) == packages.original()


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
    with pytest.raises(Broken, match="was accepted"):
        sources.check(read)


def test_a_log_that_is_put_back_unchanged_is_shown(tmp_path: Path) -> None:
    assert logs.packed(logs.records()) == logs.original_log()
    assert logs.ended(logs.original_log(), logs.original_schematic(), tmp_path) == {"shown"}


def test_the_fields_of_a_file_that_are_put_back_unchanged_give_the_same_file(tmp_path: Path) -> None:
    for whole in ep_contexts.originals(ep_contexts.prepared(tmp_path)):
        assert ep_contexts.encoded(ep_contexts.decoded(whole, ep_contexts.NESTED), None) == whole


def test_the_context_that_is_changed_runs() -> None:
    with context_of(memoryview(contexts.original()), "original") as file:
        assert contexts.run_graphs(file) == "ran"


def test_a_header_that_is_put_back_unchanged_gives_a_file_with_the_same_contents() -> None:
    whole = contexts.original()
    again = contexts.with_header(whole, contexts.header_of(whole))
    views = [context_of(memoryview(content), "file") for content in (whole, again)]
    assert contexts.contents(views[0]) == contexts.contents(views[1])
    assert contexts.with_header(again, contexts.header_of(again)) == again


def test_what_passes_unnoticed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules would see a checksum that is not checked, and an error that nothing names."""
    monkeypatch.setattr(Extent, "checked", lambda extent, sha256, damaged: extent.read())
    with pytest.raises(Broken, match="it holds something else"):
        for number in range(2000):
            contexts.examine(Random(number), tmp_path)
    with pytest.raises(Broken, match="not one printable line"):
        check_line(ValueError("two\nlines"))
    with pytest.raises(Broken, match="5000 characters"):
        check_line(ValueError("x" * 5000))


def test_changes_are_decided_by_chance_alone_and_leave_the_original() -> None:
    value = {"a": [1, {"b": "text"}], "c": {}}
    changed = [mutated_value(value, Random(number)) for number in range(50)]
    assert repr(changed) == repr([mutated_value(value, Random(number)) for number in range(50)])
    assert value == {"a": [1, {"b": "text"}], "c": {}}
    assert sum(one != value for one in changed) > 40
    assert mutated_value([], Random(1)) == []
    texts = [mutated_bytes(b"0123456789" * 10, Random(number)) for number in range(50)]
    assert texts == [mutated_bytes(b"0123456789" * 10, Random(number)) for number in range(50)]
    assert mutated_bytes(b"", Random(3)) is not None
