"""Read input lists: each line is one inference and names the files of its inputs."""

import contextlib
import os
import shlex
import sys
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from gputune.client.errors import ConfigError
from gputune.client.outputs import file_stems
from gputune.client.suggestions import instead
from gputune.core.files import open_file, read_file
from gputune.runtime.arrays import array_type, is_of
from gputune.runtime.context.records import TensorRecord

Array = npt.NDArray[Any]
Axes = Mapping[str, int]
NO_AXES: Axes = MappingProxyType({})
"""By the names of inputs the axes along which a line may give any number of tokens."""


@dataclass(frozen=True)
class InputLine:
    """The files of one inference by input name, and where the list says so. begins: whether it is the first one, or
    stands behind an empty line."""

    files: dict[str, Path]
    place: str
    begins: bool = True


NO_INPUTS = InputLine({}, "")
"""The one inference of a graph without inputs."""


def read_input_list(path: Path, inputs: tuple[TensorRecord, ...], constants: Collection[str] = ()) -> list[InputLine]:
    """Return one inference per line: `name:=file name2:=file`, or just the file if there is one input. What has blanks
    stands in double quotes: `name:="a file" "a name:=file"`. An input's file stem, as outputs.file_stems gives it, is a
    second name for it, since not every name can be written in a list.

    Lines that start with # are skipped. Behind a blank line a state begins anew; other graphs see none. Files are
    relative to the working directory. For a graph
    without inputs there is one inference. An input that the graph does not have may be given a file without elements.
    constants: inputs of the model that have a value already. Raises ConfigError that names the line.
    """
    try:
        text = read_file(path).decode()
    except OSError as error:
        raise ConfigError(f"input list {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no input list: it is no text; each line has NAME:=FILE") from None
    lines, begins = [], True
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            place = f"{path}:{number}"
            lines.append(InputLine(_files(line, inputs, constants, place), place, begins))
            begins = False
        begins = begins or not line.strip()
    if not lines and inputs:
        raise ConfigError(f"input list {path} names no inputs")
    return lines or [NO_INPUTS]


def files_named(path: Path) -> list[Path]:
    """Return the files that an input list names, whatever its inputs are called; none for a list that cannot be read,
    which `read_input_list` refuses."""
    return [Path(word.partition(":=")[2] or word) for word in _words_of(path)]


def named_in(path: Path) -> set[str]:
    """Return the inputs that an input list names; as files_named."""
    return {word.partition(":=")[0] for word in _words_of(path) if ":=" in word}


def _words_of(path: Path) -> list[str]:
    """Return the words of all lines, as far as they can be read."""
    found: list[str] = []
    with contextlib.suppress(OSError, ValueError):
        for line in read_file(path).decode().splitlines():
            if not line.lstrip().startswith("#"):
                found += _words(line)
    return found


def _words(line: str) -> list[str]:
    """Return the words of a line, some of which are in double quotes; any other character stands for itself. Raises
    ValueError where a quote is not closed."""
    words = shlex.shlex(line, posix=True)
    words.whitespace_split, words.quotes, words.escape, words.commenters = True, '"', "", ""
    return list(words)


def constants_in(configuration: Mapping[str, Any]) -> set[str]:
    """Return the inputs that --input_value has fixed, by what a context says of how it was made."""
    told = configuration.get("input_values")
    return {name for each in told if isinstance(each, dict) for name in each} if isinstance(told, list) else set()


def _files(line: str, inputs: tuple[TensorRecord, ...], constants: Collection[str], place: str) -> dict[str, Path]:
    known = [tensor.name for tensor in inputs]
    named = {stem: name for name, stem in file_stems(known).items()} | {name: name for name in known}
    files: dict[str, Path] = {}
    try:
        words = _words(line)
    except ValueError:
        raise ConfigError(f"{place}: a quote is not closed") from None
    for word in words:
        name, separator, file = word.partition(":=")
        if not separator:
            if len(known) != 1:
                raise ConfigError(
                    f"{place}: {word!r} names no input; write NAME:={word} with one of {', '.join(map(repr, known))}"
                )
            name, file = known[0], word
        if name not in named and name in constants:
            raise ConfigError(f"{place}: input {name!r} was fixed by --input_value; leave it out")
        if name not in named and _is_empty(Path(file)):
            continue
        if name not in named:
            raise ConfigError(f"{place}: there is no input {name!r}; {instead(name, known, 'the inputs are')}")
        name = named[name]
        if name in files:
            hint = "" if separator else f"; write {name}:=FILE without spaces, or a path with spaces in double quotes"
            raise ConfigError(f"{place}: input {name!r} is given twice{hint}")
        files[name] = Path(file)
    missing = [name for name in known if name not in files]
    if missing:
        raise ConfigError(f"{place}: no file for input {missing[0]!r}")
    return files


def check_files(lines: Sequence[InputLine], inputs: tuple[TensorRecord, ...], axes: Axes = NO_AXES) -> None:
    """Raise ConfigError for a file of an input that cannot be read, or has another size than the input."""
    for line in lines:
        for tensor in inputs:
            file = line.files[tensor.name]
            try:
                with open_file(file) as opened:
                    nbytes = os.fstat(opened.fileno()).st_size
            except OSError as error:
                raise _unreadable(file, line.place, error) from None
            if file.suffix != ".npy":
                _check_size(file, nbytes, _holding(nbytes, tensor, axes), line.place)


def read_inputs(line: InputLine, inputs: tuple[TensorRecord, ...], axes: Axes = NO_AXES) -> dict[str, Array]:
    """Return the arrays of one inference, from .npy files or from raw little-endian values. Raises ConfigError."""
    return {tensor.name: _read(line.files[tensor.name], tensor, line.place, axes) for tensor in inputs}


def _is_empty(file: Path) -> bool:
    """Return whether a file has no elements, as for an input that a graph does not have because it would be empty."""
    with contextlib.suppress(OSError, ValueError, EOFError, zipfile.BadZipFile):
        if file.suffix != ".npy":
            return not read_file(file)
        with open_file(file) as opened:
            value = np.load(opened, allow_pickle=False)
        return isinstance(value, np.ndarray) and not value.size
    return False


def _read(file: Path, tensor: TensorRecord, place: str, axes: Axes) -> Array:
    value: Any
    try:
        if file.suffix == ".npy":
            with open_file(file) as opened:
                value = np.load(opened, allow_pickle=False)
            if not isinstance(value, np.ndarray):  # an archive, which stays open
                value.close()
                raise ConfigError(f"{place}: {file} is an archive of arrays; give one array")
            tensor = _holding(value.nbytes, tensor, axes)
        else:
            content = read_file(file)
            tensor = _holding(len(content), tensor, axes)
            _check_size(file, len(content), tensor, place)
            value = np.frombuffer(content, array_type(tensor.dtype)).reshape(tensor.shape)
    except OSError as error:
        raise _unreadable(file, place, error) from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{place}: {file} is no array file: {error}") from None
    if value.shape != tensor.shape or not is_of(value, tensor.dtype):
        order = "" if value.dtype.isnative else "big-endian " if sys.byteorder == "little" else "little-endian "
        raise ConfigError(
            f"{place}: {file} holds {order}{value.dtype.name}{list(value.shape)}, "
            f"input {tensor.name!r} takes {tensor.dtype}{list(tensor.shape)}"
        )
    array: Array = value.view(array_type(tensor.dtype))
    return array


def _holding(nbytes: int, tensor: TensorRecord, axes: Axes) -> TensorRecord:
    """Return an input with as many tokens as so many bytes have, where it has an axis of them."""
    if (axis := axes.get(tensor.name)) is None or not tensor.nbytes:
        return tensor
    tokens, rest = divmod(nbytes * tensor.shape[axis], tensor.nbytes)
    shape = (*tensor.shape[:axis], tokens, *tensor.shape[axis + 1 :])
    return replace(tensor, shape=shape) if tokens and not rest else tensor


def _check_size(file: Path, nbytes: int, tensor: TensorRecord, place: str) -> None:
    if nbytes != tensor.nbytes:
        raise ConfigError(
            f"{place}: {file} has {nbytes} bytes, input {tensor.name!r} takes {tensor.nbytes} "
            f"({tensor.dtype}{list(tensor.shape)})"
        )


def _unreadable(file: Path, place: str, error: OSError) -> ConfigError:
    return ConfigError(f"{place}: {file} cannot be read: {error.strerror or error}")
