"""Runs a context binary over an input list and writes the results."""

import shlex
import statistics
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gputune.client.errors import ConfigError
from gputune.client.outputs import writing
from gputune.client.remote_executor import RemoteExecutor
from gputune.runtime import Executor
from gputune.runtime.context_records import GraphRecord, TensorRecord
from gputune.runtime.identity import DeviceIdentity

Array = npt.NDArray[Any]
Infer = Callable[[Mapping[str, Array]], tuple[dict[str, Array], int]]
"""Inputs in; outputs and what the inference took in nanoseconds out."""

TABLE_ROWS = 10


class AnyExecutor(Protocol):
    """What runtime.Executor and RemoteExecutor share."""

    @property
    def graph(self) -> GraphRecord: ...
    @property
    def device(self) -> DeviceIdentity: ...
    @property
    def computes(self) -> bool: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def load_ns(self) -> int: ...
    @property
    def device_open_ns(self) -> int: ...
    def run_timed(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], int]: ...
    def profile(
        self, inputs: Mapping[str, Array], inferences: int
    ) -> tuple[Sequence[float], Mapping[str, Sequence[float]]]: ...


@dataclass(frozen=True)
class InputLine:
    """The files of one inference by input name, and where the list says so."""

    files: dict[str, Path]
    place: str


NO_INPUTS = InputLine({}, "")
"""The one inference of a graph without inputs."""


def read_input_list(path: Path, inputs: tuple[TensorRecord, ...]) -> list[InputLine]:
    """One inference per line: `name:=file name2:=file`, or just the file where there is one input. What has blanks
    stands in double quotes: `name:="a file" "a name:=file"`.

    Blank lines and lines that start with # are skipped; files are relative to the working directory. For a graph
    without inputs there is one inference. Raises ConfigError that names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"input list {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            lines.append(InputLine(_files(line, inputs, f"{path}:{number}"), f"{path}:{number}"))
    if not lines and inputs:
        raise ConfigError(f"input list {path} names no inputs")
    return lines or [NO_INPUTS]


def _words(line: str) -> list[str]:
    """The words of a line, some of which are in double quotes; any other character stands for itself. Raises ValueError
    where a quote is not closed."""
    words = shlex.shlex(line, posix=True)
    words.whitespace_split, words.quotes, words.escape, words.commenters = True, '"', "", ""
    return list(words)


def _files(line: str, inputs: tuple[TensorRecord, ...], place: str) -> dict[str, Path]:
    known = [tensor.name for tensor in inputs]
    files: dict[str, Path] = {}
    try:
        words = _words(line)
    except ValueError:
        raise ConfigError(f"{place}: a quote is not closed") from None
    for word in words:
        name, separator, file = word.partition(":=")
        if not separator:
            if len(known) != 1:
                raise ConfigError(f"{place}: {word!r} names no input; write NAME:={word} with one of {known}")
            name, file = known[0], word
        if name not in known:
            raise ConfigError(f"{place}: there is no input {name!r}; the graph has {known}")
        if name in files:
            raise ConfigError(f"{place}: input {name!r} is given twice")
        files[name] = Path(file)
    missing = [name for name in known if name not in files]
    if missing:
        raise ConfigError(f"{place}: no file for input {missing[0]!r}")
    return files


def read_inputs(line: InputLine, inputs: tuple[TensorRecord, ...]) -> dict[str, Array]:
    """The arrays of one inference, from .npy files or from raw little-endian values. Raises ConfigError."""
    return {tensor.name: _read(line.files[tensor.name], tensor, line.place) for tensor in inputs}


def _read(file: Path, tensor: TensorRecord, place: str) -> Array:
    value: Any
    try:
        if file.suffix == ".npy":
            value = np.load(file, allow_pickle=False)
            if not isinstance(value, np.ndarray):  # an archive, which stays open
                value.close()
                raise ConfigError(f"{place}: {file} is an archive of arrays; give one array")
        else:
            content = file.read_bytes()
            if len(content) != tensor.nbytes:
                shape = list(tensor.shape)
                raise ConfigError(
                    f"{place}: {file} has {len(content)} bytes, input {tensor.name!r} takes {tensor.nbytes} "
                    f"({tensor.dtype}{shape})"
                )
            value = np.frombuffer(content, dtype=tensor.dtype).reshape(tensor.shape)
    except OSError as error:
        raise ConfigError(f"{place}: {file} cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{place}: {file} is no array file: {error}") from None
    if value.shape != tensor.shape or value.dtype != np.dtype(tensor.dtype):
        order = "" if value.dtype.isnative else "big-endian " if sys.byteorder == "little" else "little-endian "
        raise ConfigError(
            f"{place}: {file} holds {order}{value.dtype.name}{list(value.shape)}, "
            f"input {tensor.name!r} takes {tensor.dtype}{list(tensor.shape)}"
        )
    array: Array = value
    return array


def run(
    infer: Infer, tensors: tuple[TensorRecord, ...], lines: list[InputLine], num_inferences: int
) -> Iterator[tuple[int, dict[str, Array], int]]:
    """Runs inference after inference, starting over when the list is used up.

    infer: run_timed of an executor, or in_place of one; tensors: the graph's inputs. Yields the inference's number, its
    outputs and its nanoseconds; reading files is not counted. Inputs are kept only where they are needed again.
    """
    loaded: dict[int, dict[str, Array]] = {}
    for number in range(num_inferences):
        index = number % len(lines)
        inputs = loaded.get(index) or read_inputs(lines[index], tensors)
        if index + len(lines) < num_inferences:
            loaded[index] = inputs
        outputs, elapsed_ns = infer(inputs)
        yield number, outputs, elapsed_ns


def in_place(executor: Executor) -> Infer:
    """Inferences in the shared buffers of an executor: inputs lie there before one begins, and outputs stay there until
    the next. Neither is counted. Raises ConfigError where the device shares no memory with its host."""

    def infer(inputs: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
        for name, array in executor.shared_inputs.items():
            array[...] = inputs[name]
        return executor.shared_outputs, executor.run_in_place()

    if not executor.shares_memory:
        raise ConfigError(f"--shared_buffer: {executor.device.name} shares no memory with its host; leave it away")
    return infer


def write_result(folder: Path, outputs: dict[str, Array], npy: bool) -> None:
    """Writes NAME.raw (and NAME.npy) of each output into a folder. Raises OutputError."""
    stems = file_stems(outputs)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in outputs.items():
            (folder / f"{stems[name]}.raw").write_bytes(np.ascontiguousarray(value).tobytes())
            if npy:
                np.save(folder / f"{stems[name]}.npy", value, allow_pickle=False)


def file_stems(tensors: Iterable[str]) -> dict[str, str]:
    """A file name for each tensor; where two would share one, the later in the list gets a number."""
    stems: dict[str, str] = {}
    taken: set[str] = set()
    for tensor in tensors:
        wanted = stem = file_stem(tensor)
        number = 1
        while stem.casefold() in taken:  # some file systems do not tell A from a
            number += 1
            stem = f"{wanted}.{number}"
        taken.add(stem.casefold())
        stems[tensor] = stem
    return stems


def file_stem(tensor: str) -> str:
    """A tensor's name as a file name: what separates folders, or hides a file, becomes an underscore."""
    stem = "".join(c if c.isalnum() or c in "._-" else "_" for c in tensor)
    return f"_{stem[1:]}" if stem.startswith(".") else stem


def summarise(executor: AnyExecutor, inference_ns: list[int]) -> dict[str, Any]:
    """The names of --summary_json; medians leave out the first inference when there are others. Only a context that
    runs on a target has round trips: what the same inferences took from here. Only one that runs here says how many
    inferences were persistent."""
    summary: dict[str, Any] = {
        "load_ns": executor.load_ns,
        "device_open_ns": executor.device_open_ns,
        "first_inference_ns": inference_ns[0],
        "inference_ns": inference_ns,
        "median_inference_ns": median_ns(inference_ns),
        "device": executor.device.name,
        "computes": executor.computes,
        "graph": executor.graph.name,
        "warnings": list(executor.warnings),
    }
    if isinstance(executor, RemoteExecutor):
        summary |= {
            "target": executor.address,
            "load_round_trip_ns": executor.load_round_trip_ns,
            "round_trip_ns": list(executor.round_trip_ns),
            "median_round_trip_ns": median_ns(executor.round_trip_ns),
        }
    elif isinstance(executor, Executor) and executor.runs is not None:
        summary["runs"] = asdict(executor.runs)
    return summary


def mostly_by_launches(executor: AnyExecutor) -> str:
    """A warning where most inferences could not be persistent; else nothing."""
    runs = executor.runs if isinstance(executor, Executor) else None
    if runs is None or runs.persistent >= runs.launches + runs.aborted:
        return ""
    return (
        f"{runs.launches + runs.aborted} of {runs.inferences} inferences ran or ended by launches one by one: other "
        "programs keep the processors busy that persistent kernels need"
    )


def median_ns(inference_ns: Sequence[float]) -> float:
    """The median without the first inference, which is slower, where there are others."""
    return statistics.median(inference_ns[1:] or inference_ns)


def profile(executor: AnyExecutor, inputs: Mapping[str, Array], inferences: int) -> dict[str, Any]:
    """The content of --profile: times of whole inferences, and each operation's by the device's clock, in the
    order of the graph. `share` is of the sum of the operations' medians."""
    inference_ns, launches = executor.profile(inputs, inferences)
    medians = {operation: statistics.median(samples) for operation, samples in launches.items()}
    total = sum(medians.values())
    return {
        "device": executor.device.name,
        "computes": executor.computes,
        "graph": executor.graph.name,
        "inferences": inferences,
        "inference_ns": list(inference_ns),
        "median_inference_ns": median_ns(inference_ns),
        "operations_ns": total,
        "operations": [
            {
                "operation": operation,
                "median_ns": median,
                "minimum_ns": min(launches[operation]),
                "share": median / total if total else 0.0,
            }
            for operation, median in medians.items()
        ],
    }


def profile_table(content: Mapping[str, Any]) -> list[str]:
    """The slowest operations of a profile in lines for people."""
    slowest = sorted(content["operations"], key=lambda entry: -entry["median_ns"])
    lines = [f"{'median':>12} {'share':>6}  operation"]
    lines += [_row(entry["median_ns"], entry["share"], entry["operation"]) for entry in slowest[:TABLE_ROWS]]
    if rest := slowest[TABLE_ROWS:]:
        ns, share = (sum(entry[name] for entry in rest) for name in ("median_ns", "share"))
        lines.append(_row(ns, share, f"{len(rest)} others together"))
    return lines


def _row(ns: float, share: float, words: str) -> str:
    return f"{ns / 1e3:>9.1f} us {share:>6.1%}  {words}"
