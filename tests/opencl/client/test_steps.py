"""Run input lists by net-run whose lines are steps of a state."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.client.commands import Gputune, Ran, read_json
from tests.opencl.client.test_states import FAR, TOKENS, WANTED, ByHand, far
from tests.opencl.conftest import KernelBench
from tests.opencl.stateful import FIXED_STATE, WIDTH, WORDS, cell, decoder, growing, write

pytestmark = pytest.mark.long("who runs a list of steps: no other test runs net-run with a state")
X = np.random.default_rng(4).standard_normal((4, 1, 12)).astype(np.float32)
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def context(bench: KernelBench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("steps") / "cell.bin", bench.backend, {"cell": (cell(), FIXED_STATE)})


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], context: Path, bench: KernelBench, tmp_path: Path) -> Run:
    """Run net-run on a list, in which each word x:=N names the N-th input."""
    for number, x in enumerate(X):
        x.tofile(tmp_path / f"{number}.raw")
    np.zeros((1, WIDTH), np.float32).tofile(tmp_path / "zeros.raw")

    def run_on(lines: str, *more: object) -> Ran:
        (tmp_path / "list.txt").write_text(lines.format(folder=tmp_path))
        words = ["--retrieve_context", context, "--device", bench.backend.identity.name, *more]
        return Gputune(capfd)(
            "net-run", *words, "--input_list", tmp_path / "list.txt", "--output_dir", tmp_path / "out"
        )

    return run_on


def line(number: int) -> str:
    return f"x:={{folder}}/{number}.raw\n"


def results(folder: Path) -> list[np.ndarray]:
    count = len(list((folder / "out").iterdir()))
    return [np.fromfile(folder / "out" / f"Result_{number}" / "y.raw", np.float32) for number in range(count)]


def wanted(*sequences: tuple[int, ...]) -> list[np.ndarray]:
    """Return y of each step of sequences, of which each begins anew."""
    found = []
    for sequence in sequences:
        step = ByHand(cell(), {"h": "hn", "c": "cn"})
        found += [step(x=X[number])["y"].reshape(-1) for number in sequence]
    return found


@pytest.mark.parametrize(
    ("lines", "sequences"),
    [
        ("".join(map(line, range(4))), [(0, 1, 2, 3)]),
        (f"# first\n{line(0)}{line(1)}\n\n{line(2)}# not empty\n{line(3)}", [(0, 1), (2, 3)]),
    ],
    ids=["one sequence", "two sequences"],
)
def test_lines_are_steps_until_an_empty_line(
    run: Run, tmp_path: Path, lines: str, sequences: list[tuple[int, ...]]
) -> None:
    ran = run(lines, "--num_inferences", 8, "--warmup", 2, "--summary_json", tmp_path / "summary.json")
    assert ran.code == 0, ran.err
    found, want = results(tmp_path), wanted(*sequences)
    assert [len(found), sorted(path.name for path in (tmp_path / "out" / "Result_0").iterdir())] == [4, ["y.raw"]]
    assert all(np.abs(one - other).max() <= FAR * np.abs(other).max() for one, other in zip(found, want, strict=True))
    last = read_json(tmp_path / "summary.json")["memory"]["last"]
    assert [last[name]["bytes_copied"] for name in ("h", "c", "hn", "cn")] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("more", "cuts", "refused"),
    [
        ((), [3, 4, 34, 40], ""),
        (("--graph", "1 of 24"), [24, 25], "1 tokens do not fit a state that has 24 of 24 rows"),
    ],
)
def test_a_step_takes_any_tokens_by_the_graphs_that_fit_it(
    bench: KernelBench, run: Run, tmp_path: Path, more: tuple[str, ...], cuts: list[int], refused: str
) -> None:
    graphs = [(1, 40), (1, 24), (8, 40)]
    models = {f"{tokens} of {rows}": (decoder(tokens, rows), growing(tokens, rows)) for tokens, rows in graphs}
    ends = list(zip([0, *cuts], cuts, strict=False))
    for begin, end in ends:
        TOKENS[:, begin:end].tofile(tmp_path / f"{end}.raw")
    path = write(tmp_path / "decoder.bin", bench.backend, models)
    ran = run("".join(f"ids:={{folder}}/{end}.raw\n" for end in cuts), "--retrieve_context", path, *more)
    assert (ran.code, refused in ran.err) == (8 if refused else 0, True), ran.err
    for number, (begin, end) in enumerate(ends[: -1 if refused else None]):
        got = np.fromfile(tmp_path / "out" / f"Result_{number}" / "logits.raw", np.float32).reshape(-1, 1, WORDS)
        assert len(got) == end - begin
        assert not any(far(row, want) for row, want in zip(got, WANTED[begin:end], strict=True))


@pytest.mark.filterwarnings("ignore:.*was prepared for memory handles:UserWarning")
def test_a_list_with_files_of_the_state_is_no_list_of_steps(run: Run, tmp_path: Path) -> None:
    """Each line stands for itself, and gives all outputs."""
    zeros = "h:={folder}/zeros.raw c:={folder}/zeros.raw "
    ran = run(zeros + line(0) + zeros + line(1))
    assert ran.code == 0, ran.err
    for one, other in zip(results(tmp_path), wanted((0,), (1,)), strict=True):
        assert np.abs(one - other).max() <= FAR * np.abs(other).max()
    assert sorted(path.name for path in (tmp_path / "out" / "Result_0").iterdir()) == ["cn.raw", "hn.raw", "y.raw"]


def test_a_profile_is_of_first_steps(run: Run, tmp_path: Path) -> None:
    ran = run(line(0), "--num_inferences", 3, "--profile", tmp_path / "profile.json")
    assert ran.code == 0, ran.err
    profile = read_json(tmp_path / "profile.json")
    assert (profile["inferences"], profile["state_bytes"]) == (3, 2 * 2 * 4 * WIDTH)
    assert sum(one["median_ns"] > 0 for one in profile["operations"]) == len(profile["operations"]) > 3


@pytest.mark.parametrize("option", [("--shared_buffer",), ("--verify", "{folder}/model.onnx")])
def test_what_does_not_go_with_steps_is_said_in_a_line(run: Run, tmp_path: Path, option: tuple[str, ...]) -> None:
    (tmp_path / "model.onnx").write_bytes(cell().SerializeToString())
    ran = run(line(0), *(word.format(folder=tmp_path) for word in option))
    assert ran.code == 2
    assert f"{option[0]}: not for steps of a state; omit it, or name a file for each past input, too" in ran.err
