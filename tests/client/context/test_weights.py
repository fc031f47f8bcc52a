"""Test where constants of a context lie: in sections and packings that a device can allocate, each content once."""

import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gputune.cache import PerformanceCache
from gputune.client.context.argument_form import DeviceChoices
from gputune.client.context.builder import Built, Wanted
from gputune.client.context.memory import weights as weights_module
from gputune.client.context.memory.load_choice import packed_or_smaller
from gputune.client.context.memory.weights import Packing, Packings, Weights
from gputune.client.errors import MemoryPlanError, TargetError
from gputune.runtime.context.records import BufferRef, GraphRecord
from tests.native.fake import CPU

ALIGNMENT, LARGEST = 16, 100


def contents(count: int, seed: int = 1) -> list[bytes]:
    """Return constants of different lengths, some of them equal, and some as large as can be."""
    dice = random.Random(seed)
    made = [dice.randbytes(dice.choice([1, 15, 16, 17, 40, 84, LARGEST - 1, LARGEST])) for _ in range(count)]
    return [*made, *dice.sample(made, 3)]


def check_apart(refs: list[BufferRef]) -> None:
    """Different buffers are aligned, and none reaches into the next."""
    places = sorted({(ref.index, ref.offset, ref.nbytes) for ref in refs})
    assert all(offset % ALIGNMENT == 0 for _, offset, _ in places)
    for (one, offset, nbytes), (other, behind, _) in pairwise(places):
        assert one != other or offset + nbytes <= behind


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("apart", [False, True])
def test_sections_hold_all_constants_and_can_be_allocated(apart: bool, seed: int) -> None:
    weights, constants = Weights(ALIGNMENT, LARGEST, apart), contents(40, seed)
    refs = [weights.add(content, "sum") for content in constants]
    sections = weights.sections()
    assert [sections[ref.index][ref.offset : ref.offset + ref.nbytes] for ref in refs] == constants
    assert all(len(section) <= LARGEST for section in sections)
    assert len({*refs}) == len({*constants}), "equal contents lie at one place"
    assert not apart or len(sections) == len({*constants})
    check_apart(refs)


def test_sections_are_as_full_as_can_be() -> None:
    weights = Weights(ALIGNMENT, LARGEST)
    places = [weights.add(bytes([number]) * 36, "sum") for number in range(4)]
    assert [(ref.index, ref.offset) for ref in places] == [(0, 0), (0, 48), (1, 0), (1, 48)]
    assert weights.add(b"x" * 4, "sum") == BufferRef("weights", 1, 96, 4), "its end is that of the section"


def test_a_constant_that_no_section_holds_is_refused_by_name() -> None:
    with pytest.raises(MemoryPlanError, match="'sum' needs 101 bytes; the device allocates at most 100 bytes"):
        Weights(ALIGNMENT, LARGEST).add(bytes(LARGEST + 1), "sum")


def packing(*packed: bytes) -> Packing:
    named = {f"packed{number}": content for number, content in enumerate(packed)}
    return Packing("sum", "0" * 64, (), {"b": packed[0][:1]}, named)


@pytest.mark.parametrize("most", [48, 1 << 20], ids=["small parts", "parts as large as can be"])
@pytest.mark.parametrize("apart", [False, True])
def test_what_is_packed_at_loading_can_be_allocated(apart: bool, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part ends behind what it holds, aligned; an operation that needs more than PART_BYTES has its own."""
    monkeypatch.setattr(weights_module, "PART_BYTES", most)
    packings = Packings(Weights(ALIGNMENT, LARGEST, apart))
    refs = [ref for content in contents(40) if len(content) <= 84 for ref in packings.add(packing(content)).values()]
    graphs = packings.graphs(0, lambda kernel: 0)
    sizes = [arena for graph in graphs for arena in graph.arena_bytes]
    assert {ref.kind for ref in refs} == {"packed"}
    assert all(ref.offset + ref.nbytes <= sizes[ref.index] <= LARGEST for ref in refs)
    for index, size in enumerate(sizes):
        assert size <= most or len({ref.offset for ref in refs if ref.index == index}) == 1
        assert not apart or len({ref.offset for ref in refs if ref.index == index}) == 1
    check_apart(refs)


def test_what_is_packed_is_kept_packed_if_no_buffer_holds_it_all() -> None:
    weights = Weights(ALIGNMENT, LARGEST)
    both = Packings(weights).add(packing(b"a" * 60, b"b" * 60))
    assert {ref.kind for ref in both.values()} == {"weights"}
    assert weights.sections() == (b"a" * 60, b"b" * 60)


class Runner:
    """A runner that says how long contexts take to load; None where it cannot load them. Without times no time is
    left."""

    def __init__(self, *taken_ns: float | None) -> None:
        self._taken_ns = taken_ns

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def has_time_for(self, turns: int) -> bool:
        return bool(self._taken_ns)

    def load_ns(self, contexts: list[Built]) -> Any:
        if None in self._taken_ns:
            raise TargetError("cancelled", "the target is gone")
        return self._taken_ns


@pytest.mark.parametrize(
    ("nbytes", "taken_ns", "packs", "words"),
    [
        (1300, (100.0, 100.0), True, ""),  # not larger than they have to be
        (1301, (100.0, 120.0), False, "larger forms of them are made at load, which takes 1.20 times as long"),
        (1301, (100.0, 90.0), False, "takes 0.90 times as long (--weights auto)"),
        (1301, (100.0, 121.0), True, "making larger forms of them at load would take 1.21 times as long"),
        (1301, (100.0, None), True, ""),
        (1301, (), True, ""),
    ],
)
def test_larger_weights_are_packed_at_load_where_that_is_as_fast(
    nbytes: int,
    taken_ns: tuple[float | None, ...],
    packs: bool,
    words: str,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    plan = SimpleNamespace(constants={"w": np.zeros(250, np.float32)})
    packed, other = (
        Built((), (), (bytes(nbytes),), (), packing) for packing in ((), (GraphRecord("", (), (), (), (8,)),))
    )

    def make(compact: bool, growth: float) -> Built:
        assert (compact, growth) == (True, weights_module.LARGER)
        return other

    wanted: Any = [Wanted(plan, {})]  # type: ignore[arg-type]
    with PerformanceCache.open(tmp_path / "c.db") as cache:
        choices, nothing = (DeviceChoices(cache, CPU, {}, frozen) for frozen in (False, True))
        built, said = packed_or_smaller(Runner(*taken_ns), packed, make, wanted, choices)  # type: ignore[arg-type]
        again = packed_or_smaller(Runner(), packed, make, wanted, nothing)  # type: ignore[arg-type]
        assert again == (built, said), "what was measured is kept"
    assert built is (packed if packs else other)
    assert words in said and bool(words) == bool(said)
    assert ("the target is gone" in caplog.text) == (None in taken_ns)
