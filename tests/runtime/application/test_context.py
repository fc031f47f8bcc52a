"""Test all graphs of a context as one object: which graph runs, what is refused, and that its memory is freed."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gputune
from gputune.core.errors import ContextClosed, WrongDevice
from gputune.runtime import MemHandle
from gputune.runtime.backends import Buffer
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, TensorRecord

SMALL, LARGE = np.zeros((2, 4), np.float32), np.zeros((4, 4), np.float32)


def graph_of(main: GraphRecord, name: str, *shapes: tuple[int, ...]) -> GraphRecord:
    """The graph with inputs x0, x1 and so on of these shapes."""
    inputs = tuple(TensorRecord(f"x{place}", shape) for place, shape in enumerate(shapes))
    launch = replace(
        main.launches[0], arguments=tuple(BufferRef("input", i, 0, t.nbytes) for i, t in enumerate(inputs))
    )
    return replace(main, name=name, inputs=inputs, launches=(launch,))


@pytest.fixture
def file(context: Context, tmp_path: Path) -> Path:
    """Graphs small and large, which differ by their shapes, and two that do not."""
    main = context.graphs[0]
    graphs = [
        graph_of(main, "small", (2, 4)),
        graph_of(main, "large", (4, 4)),
        graph_of(main, "one", (2, 4), (4, 4)),
        graph_of(main, "two", (2, 4), (4, 4)),
    ]
    write_context(tmp_path / "several.bin", replace(context, graphs=tuple(graphs)))
    return tmp_path / "several.bin"


def inferences(loaded: gputune.Context) -> dict[str, int]:
    return {name: one.counters.inferences for name, one in loaded.executors.items()}


def test_the_shapes_of_inputs_choose_the_graph(file: Path) -> None:
    with gputune.load(file, "null") as loaded:
        loaded.run(LARGE)
        loaded.run({"x0": LARGE})
        loaded.run({"x0": SMALL})
        loaded.run({"x0": SMALL, "x1": LARGE}, graph="two")
        assert inferences(loaded) == {"small": 1, "large": 2, "one": 0, "two": 1}


def test_an_empty_array_may_stand_for_an_input_that_a_graph_does_not_have(file: Path) -> None:
    """As an input without elements is none, so a loop needs no other call for its first step."""
    empty, other = np.zeros((1, 0), np.float32), np.zeros((1, 2), np.float32)
    with gputune.load(file, "null") as loaded:
        loaded.run({"x0": LARGE, "past": empty})
        loaded.run({"past": empty, "x0": SMALL, "x1": LARGE, "more": empty}, graph="two")
        assert inferences(loaded) == {"small": 0, "large": 1, "one": 0, "two": 1}
        for wrong in ({"x0": LARGE, "past": other}, {"x0": empty}, {"past": empty}):
            with pytest.raises(ValueError, match="no graph takes"):
                loaded.run(wrong)
        with pytest.raises(ValueError, match="has no input 'past'"):
            loaded.run({"x0": SMALL, "past": other}, graph="small")
        with pytest.raises(ValueError, match="needs the input 'x0'"):
            loaded.run({"past": empty}, graph="small")
        with pytest.raises(ValueError, match="has no output 'past'"):
            loaded.run({"x0": SMALL}, {"past": empty}, graph="small")


def test_what_no_graph_or_several_take_is_refused_by_name(file: Path) -> None:
    with gputune.load(file, "null") as loaded:
        with pytest.raises(ValueError, match=r"no graph takes float32\[3\]; the graphs take small: x0 float32\[2, 4\]"):
            loaded.run(np.zeros(3, np.float32))
        with pytest.raises(ValueError, match=r"several graphs take these inputs: \['one', 'two'\]"):
            loaded.run({"x0": SMALL, "x1": LARGE})
        with pytest.raises(ValueError, match="graph 'one' has 2 inputs; give arrays by name"):
            loaded.run(SMALL, graph="one")
        with pytest.raises(ValueError, match="there is no graph 'three'"):
            loaded.run(SMALL, graph="three")


def test_handles_choose_by_their_size(file: Path) -> None:
    with gputune.load(file, "null") as loaded, MemHandle.from_array(SMALL.copy()) as handle:
        loaded.run({"x0": handle})
        assert inferences(loaded)["small"] == 1
        loaded.close()


@pytest.mark.parametrize("graph", [None, "large"])
def test_closing_gives_the_device_memory_back(file: Path, graph: str | None) -> None:
    with gputune.load(file, "null", graph=graph) as loaded:
        future = loaded.run_async(LARGE)
        assert loaded.device_bytes > 0
    assert loaded.device_bytes == 0
    assert future.result()["y"].shape == (8,)  # what was begun is ended, not dropped
    assert "closed" in repr(loaded)
    for use in (loaded.run, loaded.run_async):
        with pytest.raises(ContextClosed):
            use(LARGE)
    loaded.close()


def test_threads_and_futures_get_their_own_results(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The null device computes nothing, so a copy from what was written last stands for the launches here."""
    written = np.zeros(8, np.float32)

    def write(backend: NullBackend, buffer: Buffer, data: np.ndarray) -> None:
        written[:] = data.reshape(-1)
        time.sleep(0)  # another thread may run

    def read(backend: NullBackend, buffer: Buffer, into: np.ndarray) -> None:
        into[:] = written.view(np.uint8)

    monkeypatch.setattr(NullBackend, "write", write)
    monkeypatch.setattr(NullBackend, "read", read)
    with gputune.load(file, "null", graph="small") as loaded:
        wrong: list[int] = []

        def work(value: int) -> None:
            array = np.full((2, 4), value, np.float32)
            futures = [loaded.run_async(array) for _ in range(20)]
            results = [*(loaded.run(array) for _ in range(100)), *(future.result() for future in futures)]
            wrong.extend(value for one in results if not (one["y"] == value).all())

        threads = [threading.Thread(target=work, args=(value,)) for value in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert inferences(loaded)["small"] == 8 * 120


def test_its_repr_says_device_tensors_and_form(file: Path) -> None:
    with gputune.load(file, "null") as loaded:
        text = repr(loaded)
    assert "several.bin' on null" in text
    assert "\n  large: x0 float32[4, 4] -> y float32[8], 1 launches" in text


def test_zeros_are_only_for_those_that_ask(file: Path) -> None:
    with pytest.raises(WrongDevice, match="zeros"):
        gputune.load(file)


def test_bench_counts_what_it_was_asked_for(file: Path) -> None:
    with gputune.load(file, "null") as loaded:
        bench = loaded.bench(warmup=2, inferences=5, graph="large")
        assert inferences(loaded)["large"] == 7
        with pytest.raises(ValueError, match="at least 1"):
            loaded.bench(inferences=0)
    assert (bench.graph, bench.device, len(bench.times_ns)) == ("large", "null", 5)
    assert bench.median_ns == bench.percentiles_ns["p50"] == sorted(bench.times_ns)[2]
    assert bench.to_dict()["times_ns"] == list(bench.times_ns)
