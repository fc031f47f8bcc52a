"""Run the loops of docs/decoders.md, in Python and in C: both find the same words."""

import contextlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.native.compiling import INCLUDE, LIBRARIES, STRICT, compiler, library, opencl_library
from tests.opencl.conftest import KernelBench

PAGE = (Path(__file__).parents[3] / "docs" / "decoders.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def compiled(folder: Path) -> Path:
    """Return the program of the page."""
    if (found := compiler()) is None:
        pytest.skip("there is no C compiler")
    (program,) = blocks("c")
    (folder / "decoder.c").write_text(program, encoding="utf-8")
    linked = [str(library()), f"-Wl,-rpath,{library().parent}", *LIBRARIES]
    command = [found, *STRICT, f"-I{INCLUDE}", "decoder.c", *linked, "-o", "decoder"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "decoder"


def test_the_program_compiles(tmp_path: Path) -> None:
    assert compiled(tmp_path).exists()


@pytest.mark.night
def test_both_loops_find_the_same_words(
    bench: KernelBench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GPUTUNE_DEVICE", bench.backend.identity.name)
    with contextlib.chdir(tmp_path):
        exec(compile("".join(blocks("python")), "decoders.md", "exec"), {"__name__": "decoders"})
    words = capsys.readouterr().out.strip().splitlines()[-1]
    own = {**opencl_library(), **os.environ}
    done = subprocess.run([compiled(tmp_path)], cwd=tmp_path, env=own, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (words, "")
