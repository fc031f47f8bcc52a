"""Compare arenas, placed greedily and searched for, with the most that is alive at once (`scripts/bench arena`)."""

import argparse
import csv
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import tool
from benchmarks.peers.comparing import Failed
from gputune.client.context.builder import PORTABLE_ALIGNMENT
from gputune.client.context.memory.arena_search import SEARCH_STEPS, search_arenas
from gputune.client.context.memory.memory_planner import Lifetime, Placement, plan_arenas
from gputune.client.context.memory.storage import arena_lifetimes
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.tuning.outcome import untuned
from gputune.client.tuning.search.task_search import device_limits
from gputune.kernels.catalogue import family_of
from gputune.runtime.devices.discovery import NULL_REPORT
from models import classic_models
from models.zoo import entry_of
from models.zoo_models import ENTRIES, Entry

NETWORKS: Mapping[str, Entry] = {
    **{name: entry for name, entry in ENTRIES.items() if name != "magika" and "silero" not in name},
    "MobileNetV2": Entry(lambda: classic_models.mobilenet_v2().path),
    "ResNet-18": Entry(lambda: classic_models.resnet18().path),
}
"""Those whose tensors are placed when nothing is asked for."""
MOST_OF_A_NETWORK, MOST_OF_AN_INSTANCE = 1.01, 1.15
"""Times the bound; more is a failure."""
UNLIMITED = 1 << 50


@dataclass(frozen=True)
class Row:
    """What became of a network or an instance; times are seconds."""

    name: str
    tensors: int
    bound_bytes: int
    greedy_bytes: int
    greedy_seconds: float
    found_bytes: int
    found_seconds: float
    allowed: float

    @property
    def cells(self) -> tuple[str, ...]:
        before, after = (nbytes / self.bound_bytes for nbytes in (self.greedy_bytes, self.found_bytes))
        times = (f"{self.greedy_seconds:.3f}", f"{self.found_seconds:.2f}")
        return self.name, str(self.tensors), str(self.bound_bytes), f"{before:.4f}", f"{after:.4f}", *times


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    command.add_argument(
        "what",
        nargs="*",
        metavar="NAME|FILE|FOLDER",
        help=f"networks ({', '.join(NETWORKS)}), ONNX files, CSV files (id, lower, upper, size) or folders "
        "of such; all of these networks without any",
    )
    command.add_argument(
        "--input_dimensions", action="append", default=[], metavar="NAME=D0,D1,...", help="of the files' open inputs"
    )
    command.add_argument(
        "--steps", type=int, default=SEARCH_STEPS, help="memory_search_steps of the generator (default: %(default)s)"
    )
    command.add_argument("--json", type=Path, help="write the numbers to this file as well")


def run(options: argparse.Namespace) -> None:
    """Compare arenas, by the quick plan and by the search, with the most that is alive at once; needs no device.
    Networks are lowered with default configurations."""
    rows = []
    for name, tensors, alignment, allowed in _asked(options.what, options.input_dimensions):
        rows.append(_measured(name, tensors, alignment, allowed, options.steps))
        print(f"{name}: done", flush=True)
    head = ["what", "tensors", "bound bytes", "greedy / bound", "searched / bound", "greedy s", "searched s"]
    print("\n" + tool.table(head, [row.cells for row in rows]), flush=True)
    if options.json is not None:
        result = {"steps": options.steps, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if large := [row.name for row in rows if row.found_bytes > row.allowed * row.bound_bytes]:
        limits = f"{MOST_OF_A_NETWORK} (networks) or {MOST_OF_AN_INSTANCE} (instances)"
        raise Failed(f"more than {limits} times the bound: {', '.join(large)}")


def _asked(names: Sequence[str], dimensions: Sequence[str]) -> Iterator[tuple[str, list[Lifetime], int, float]]:
    """Name, tensors, alignment and allowed ratio of each."""
    if unknown := [name for name in names if name not in NETWORKS and not Path(name).exists()]:
        _refuse(f"{unknown[0]!r} is neither a file or folder nor one of {', '.join(NETWORKS)}")
    for name in names or NETWORKS:
        path = Path(name)
        if name not in NETWORKS and (path.is_dir() or path.suffix == ".csv"):
            files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
            yield from ((f"instance {file.stem}", _instance(file), 1, MOST_OF_AN_INSTANCE) for file in files)
        else:
            entry = NETWORKS.get(name) or entry_of(_refuse, name, dimensions)
            yield name, _network(entry), PORTABLE_ALIGNMENT, MOST_OF_A_NETWORK


def _refuse(message: str) -> None:
    raise SystemExit(message)


def _network(entry: Entry) -> list[Lifetime]:
    """What the arenas of a network hold."""
    assert NULL_REPORT.identity is not None
    limits = device_limits(NULL_REPORT.identity)
    plan = lower(read_model(entry.file(), dict(entry.dimensions), entry.values))
    configurations = {task: untuned(task, limits).configuration for task in plan.tasks}
    instances = [
        family_of(each.task.op).render(each.task.problem, configurations[each.task]) for each in plan.operations
    ]
    return arena_lifetimes(plan, instances)


def _instance(path: Path) -> list[Lifetime]:
    """Of a file with a tensor in each row: alive from `lower` on, not any more at `upper`."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Lifetime(row["id"], int(row["size"]), int(row["lower"]), int(row["upper"]) - 1)
            for row in csv.DictReader(file)
        ]


def _measured(name: str, tensors: Sequence[Lifetime], alignment: int, allowed: float, steps: int) -> Row:
    greedy, greedy_seconds = _timed(partial(plan_arenas, tensors, alignment, UNLIMITED))
    found, found_seconds = _timed(partial(search_arenas, tensors, alignment, UNLIMITED, steps))
    return Row(
        name=name,
        tensors=len(tensors),
        bound_bytes=found.bound_bytes,
        greedy_bytes=greedy.total_bytes,
        greedy_seconds=greedy_seconds,
        found_bytes=found.total_bytes,
        found_seconds=found_seconds,
        allowed=allowed,
    )


def _timed(make: Callable[[], Placement]) -> tuple[Placement, float]:
    began = time.perf_counter()
    made = make()
    return made, time.perf_counter() - began
