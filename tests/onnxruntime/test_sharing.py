"""Test sessions that share files, weights and arenas, and threads that share sessions."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.native.fake import NBYTES, doubling_context
from tests.onnxruntime.models import node, save
from tests.onnxruntime.sessions import Array, Onnxruntime, Step, closed, filled, opened, run

SHARES = {"ep.share_ep_contexts": "1"}
STOPS = SHARES | {"ep.stop_share_ep_contexts": "1"}
INFO = 1
SMALL, LARGE = 2 * NBYTES, 5 * NBYTES
"""Bytes of the arenas of small and large."""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    binary = doubling_context(tmp_path / "small.bin")
    return save(tmp_path / "small.onnx", [node(["x"], ["y"], binary)], ["x"], ["y"])


@pytest.fixture
def large(tmp_path: Path) -> Path:
    binary = doubling_context(tmp_path / "large.bin", apart=LARGE - NBYTES)
    return save(tmp_path / "large.onnx", [node(["x"], ["y"], binary)], ["x"], ["y"])


def shared(log: str) -> list[tuple[int, int]]:
    """The bytes of arenas and the sessions of each graph that was loaded into shared ones."""
    return [(int(size), int(count)) for size, count in re.findall(r"arenas of (\d+) bytes, which (\d+) sessions", log)]


def alive() -> Step:
    """Counts OpenCL objects."""
    return "fake", {"function": "fake_alive"}


def held() -> tuple[Step, Step]:
    """Counts open files and OpenCL objects."""
    return ("descriptors", {}), alive()


def test_sessions_share_arenas_and_programs(newest: Onnxruntime, small: Path, large: Path) -> None:
    def objects(entries: dict[str, str]) -> tuple[int, str]:
        """How many more OpenCL objects there are for the second session, and the log."""
        ran = newest.do(
            opened(large, "large", entries=entries, severity=INFO),
            alive(),
            opened(small, "small", entries=entries, severity=INFO),
            alive(),
            run({"x": filled(1)}, "small"),
            run({"x": filled(2)}, "large"),
            closed("large"),
            run({"x": filled(3)}, "small"),
        )
        _, before, _, after, one, two, _, three = ran.results
        assert [set(found["y"]) for found in (one, two, three)] == [{8}, {16}, {24}]
        return after - before, ran.log

    apart, silent = objects({})
    together, log = objects(SHARES)
    assert apart - together == 2, "a program and an arena"
    assert shared(silent) == [] and shared(log) == [(LARGE, 1), (LARGE, 2)]


def test_a_session_that_needs_more_gets_arenas_of_its_own(newest: Onnxruntime, small: Path, large: Path) -> None:
    """A third session finds the arenas that suffice."""
    ran = newest.do(
        opened(small, "small", entries=SHARES, severity=INFO),
        opened(large, "large", entries=SHARES, severity=INFO),
        opened(large, "again", entries=SHARES, severity=INFO),
        *(run({"x": filled(value)}, name) for value, name in ((1, "small"), (2, "large"), (3, "again"), (4, "small"))),
    )
    assert [set(found["y"]) for found in ran.results[3:]] == [{8}, {16}, {24}, {32}]
    assert shared(ran.log) == [(SMALL, 1), (LARGE, 2), (LARGE, 3)]
    words = f"the shared arenas have {SMALL} bytes, too few for this session: it gets {LARGE} bytes more"
    assert ran.log.count(words) == 1


def test_sharing_ends_after_the_session_that_says_so(newest: Onnxruntime, small: Path) -> None:
    steps = [
        opened(small, str(place), entries=entries, severity=INFO)
        for place, entries in enumerate((SHARES, {}, STOPS, SHARES))
    ]
    ran = newest.do(*steps, *(run({"x": filled(1)}, str(place)) for place in range(4)))
    assert [set(found["y"]) for found in ran.results[4:]] == [{8}] * 4
    assert shared(ran.log) == [(SMALL, 1), (SMALL, 2), (SMALL, 1)]


def test_a_file_that_was_replaced_is_opened_again(newest: Onnxruntime, small: Path, tmp_path: Path) -> None:
    """While a session has the old one, which shares with the new session what they have in common."""
    new = doubling_context(tmp_path / "new.bin", ("main",), apart=2 * NBYTES)
    steps = opened(small, "old", entries=SHARES), opened(small, "new", entries=SHARES)
    ran = newest.do(
        steps[0],
        ("rename", {"old": new, "new": tmp_path / "small.bin"}),
        steps[1],
        run({"x": filled(1)}, "old"),
        run({"x": filled(2)}, "new"),
    )
    assert [set(found["y"]) for found in ran.results[3:]] == [{8}, {16}]
    assert f"it gets {3 * NBYTES} bytes more" in ran.log, "as the new file needs"


def test_files_and_arenas_go_with_their_last_session(newest: Onnxruntime, small: Path, tmp_path: Path) -> None:
    """While another session shares: a service that renews its models has no more open at its end. Some new files need
    larger arenas than those of the kept session."""
    renewals: list[Step] = []
    for place in range(4):
        new = doubling_context(tmp_path / f"{place}.bin", apart=(3 if place % 2 else 1) * NBYTES)
        renewals += [
            ("rename", {"old": new, "new": tmp_path / "small.bin"}),
            opened(small, "new", entries=SHARES),
            run({"x": filled(place)}, "new"),
            closed("new"),
            *held(),
        ]
    ran = newest.do(opened(small, "kept", entries=SHARES), *held(), *renewals, run({"x": filled(9)}, "kept"), *held())
    kept, *rest = ran.results
    before, after = rest[:2], rest[-2:]
    assert kept is None and set(rest[-3]["y"]) == {72}
    for place in range(4):
        _, nothing, found, _, *still = rest[2 + 6 * place :][:6]
        assert nothing is None and set(found["y"]) == {8 * place}
        assert still == before, f"after renewal {place}"
    assert after == before


@pytest.mark.parametrize("entries", [{}, SHARES], ids=["apart", "shared"])
@pytest.mark.parametrize("wrong", ["missing", "cut"])
def test_a_session_that_is_refused_leaves_nothing(
    newest: Onnxruntime, tmp_path: Path, entries: dict[str, str], wrong: str
) -> None:
    """The first of its nodes has loaded when the second, of the same context or of another one, is refused."""
    binary = doubling_context(tmp_path / "a.bin", ("one", "two"))
    other = doubling_context(tmp_path / "b.bin", ("one", "two"))
    (tmp_path / "cut.bin").write_bytes(other.read_bytes()[:-1])
    second = None if wrong == "missing" else tmp_path / "cut.bin"
    nodes = [node(["x"], ["a"], binary, "one"), node(["a"], ["y"], second, "two" if second else "missing")]
    refused = save(tmp_path / "refused.onnx", nodes, ["x"], ["y"], ["a"])
    good = save(tmp_path / "good.onnx", nodes[:1], ["x"], ["a"])
    ran = newest.do(
        opened(good, "kept", entries=entries),
        *held(),
        opened(refused, "refused", entries=entries),
        *held(),
        opened(refused, "refused", entries=entries),
        *held(),
        run({"x": filled(1)}, "kept"),
    )
    kept, *before, said, _, _, again, fds, objects, found = ran.results
    assert kept is None and set(found["a"]) == {8}
    assert "EPContext node 'node of y': " in said and "EPContext node 'node of y': " in again
    assert [fds, objects] == before


def test_the_nodes_of_a_session_share_an_arena(newest: Onnxruntime, tmp_path: Path) -> None:
    binary = doubling_context(tmp_path / "a.bin", ("one", "two"))
    nodes = [node(["x"], ["a"], binary, "one"), node(["a"], ["y"], None, "two")]
    both = save(tmp_path / "both.onnx", nodes, ["x"], ["y"], ["a"])
    one = save(tmp_path / "one.onnx", nodes[:1], ["x"], ["a"])
    ran = newest.do(alive(), opened(one), alive(), closed(), opened(both), alive(), run({"x": filled(1)}))
    of_none, _, of_one, _, _, of_both, found = ran.results
    assert set(found["y"]) == {64}
    assert of_both == 2 * of_one - of_none - 2, "the arena and the program are there once"


@pytest.mark.parametrize("entries", [{}, SHARES], ids=["apart", "shared"])
def test_threads_share_sessions(ort: Onnxruntime, small: Path, large: Path, entries: dict[str, str]) -> None:
    """Eight threads on two sessions, each with values of its own."""
    inputs: list[Array] = [np.arange(64, dtype=np.float32) + 100 * place for place in range(8)]
    runs = [run({"x": one}, ("large", "small")[place % 2])[1] for place, one in enumerate(inputs)]
    ran = ort.do(
        opened(large, "large", entries=entries),
        opened(small, "small", entries=entries),
        ("run_in_threads", {"runs": runs, "times": 50}),
    )
    assert ran.results[2] == [[{"y": (8 * one).tobytes()}] for one in inputs]


def test_sessions_in_turn_leave_nothing(newest: Onnxruntime, small: Path) -> None:
    steps = [opened(small), run({"x": filled(1)}), closed(), alive()]
    counts = newest.do(*steps, *steps, *steps, alive()).results[3::4]
    assert len(set(counts)) == 1, counts


def test_sessions_may_be_opened_at_the_same_time(newest: Onnxruntime, small: Path, large: Path) -> None:
    opens = [opened(large if place % 2 else small, str(place), entries=SHARES)[1] for place in range(8)]
    ran = newest.do(
        ("open_in_threads", {"sessions": opens}), *(run({"x": filled(place)}, str(place)) for place in range(8))
    )
    assert ran.results[0] == [None] * 8
    assert [set(found["y"]) for found in ran.results[1:]] == [{8 * place} for place in range(8)]
