"""Write the exported folder: sources, context, an example of its inputs, and a page that explains how to build and use
it.
"""

from __future__ import annotations

import re
import shutil
from importlib.metadata import distributions
from pathlib import Path

import numpy as np

from gputune.client.errors import ConfigError, OutputError
from gputune.client.export.contents import Contents
from gputune.client.export.page import page
from gputune.client.outputs import file_stems, whole
from gputune.core.dtypes import is_float
from gputune.runtime import native
from gputune.runtime.arrays import array_type
from gputune.runtime.context.records import TensorRecord

INPUT_LIST = "input_list.txt"
INPUTS = Path("inputs")
PAGE = "README.md"
_PLAIN = re.compile(r"[^\s\"#=]+")
"""Names of inputs that an input list can hold as they are; of others it has the file stem."""
LICENSE = "LICENSE"


def export(contents: Contents, folder: Path) -> None:
    """Write what `contents` says into a folder that is new or empty; it appears complete or not at all. Raises
    ConfigError, OutputError."""
    home = contents.path.parent.resolve()  # as the paths that nodes name are
    own_file, *others = contents.files
    files = {Path(own_file.name): own_file, **{path.relative_to(home): path for path in others}}
    own = {*native.files(), Path(INPUT_LIST), Path(PAGE), Path(LICENSE)}
    for path in files:
        if path in own or path.parts[0] == INPUTS.name:
            raise ConfigError(f"--context_binary: an exported folder has its own file {path}; rename the context")
    if not contents.path.name.isprintable():
        raise ConfigError(
            f"--context_binary: the file's name {contents.path.name!r} has characters that the commands in the "
            "folder's README.md cannot contain; rename the context"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"--output_dir: {folder} exists and is not an empty folder; name a new one")
    with whole(folder) as unfinished:
        try:
            files |= {path: native.FOLDER / path for path in native.files()}
            for path, source in files.items():
                (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, unfinished / path)
            _write_inputs(unfinished, contents.graphs[0].inputs)
            (unfinished / PAGE).write_text(page(contents), encoding="utf-8")
            (unfinished / LICENSE).write_text(_license(), encoding="utf-8")
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


def _license() -> str:
    """Return the text under which the sources are passed on. A folder that is installed for development has
    descriptions of gputune without it, too."""
    texts = (found.read_text(f"licenses/{LICENSE}") for found in distributions(name="gputune"))
    return next(filter(None, texts), "Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0\n")


def _write_inputs(folder: Path, inputs: tuple[TensorRecord, ...]) -> None:
    """Write a file for each input with numbers that do for a first run, and the input list that names them."""
    (folder / INPUTS).mkdir()
    numbers = np.random.default_rng(0)
    words = []
    for name, stem in file_stems(tensor.name for tensor in inputs).items():
        (tensor,) = (tensor for tensor in inputs if tensor.name == name)
        path = INPUTS / f"{stem}.raw"
        values = numbers.random(tensor.shape) if is_float(tensor.dtype) else np.zeros(tensor.shape)
        values.astype(array_type(tensor.dtype)).tofile(folder / path)
        words.append(f"{name if _PLAIN.fullmatch(name) else stem}:={path.as_posix()}")
    (folder / INPUT_LIST).write_text(" ".join(words) + "\n", encoding="utf-8")
