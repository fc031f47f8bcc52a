"""Test gputune export: a folder that holds all that its program needs, and what it refuses."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gputune.client.generation.ep_context import EpContextFile
from gputune.runtime import native
from tests.client.commands import Gputune
from tests.client.contexts import DEVICE, small_context

COMPUTING = {**DEVICE, "name": "A GPU", "platform": "x", "driver_version": "7.1"}


@pytest.fixture
def context(tmp_path: Path) -> Path:
    return small_context(tmp_path / "model.bin", device=COMPUTING)


def test_the_folder_holds_sources_context_inputs_and_a_page(gputune: Gputune, context: Path, tmp_path: Path) -> None:
    app = tmp_path / "new" / "app"
    ran = gputune("export", "--context_binary", context, "--output_dir", app)
    assert ran.code == 0, ran.err
    written = {path.relative_to(app) for path in app.rglob("*") if path.is_file()}
    more = {"model.bin", "README.md", "LICENSE", "input_list.txt", "inputs/x.raw"}
    assert written == {*native.files(), *map(Path, more)}
    assert (app / "model.bin").read_bytes() == context.read_bytes()
    assert (app / "input_list.txt").read_text() == "x:=inputs/x.raw\n"
    numbers = np.fromfile(app / "inputs" / "x.raw", np.float32)
    assert numbers.size == 8
    assert len(set(numbers)) == 8
    page = (app / "README.md").read_text()
    assert "Made for: A GPU (7.1)." in page
    assert "| input | `x` | float32 | 2 × 4 | 32 |" in page
    assert not re.search(r"[{}](?!\.|\n)", page.split("```c")[0].split("```sh")[0])


def test_the_page_claims_no_tuning_and_shows_versions_as_they_are(gputune: Gputune, tmp_path: Path) -> None:
    context = small_context(tmp_path / "model.bin", device={**COMPUTING, "driver_version": "3.1+debian"})
    assert gputune("export", "--context_binary", context, "--output_dir", tmp_path / "app").code == 0
    page = (tmp_path / "app" / "README.md").read_text()
    assert "Made for: A GPU (3.1+debian)." in page
    assert "has tuned" not in page


@pytest.mark.parametrize(("library", "said"), [("libc.so.6", ""), ("no_such_library.so", "find no no_such_library.so")])
def test_a_missing_opencl_library_is_said(
    gputune: Gputune, context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, said: str
) -> None:
    """Programs in C need one of their own; that of Python is inside its packages."""
    monkeypatch.setenv("GPUTUNE_OPENCL_LIBRARY", library)
    ran = gputune("export", "--context_binary", context, "--output_dir", tmp_path / "app")
    assert ran.code == 0
    assert (said in ran.err and "warning: programs in C" in ran.err) if said else "warning" not in ran.err


def test_the_program_of_the_page_compiles(gputune: Gputune, context: Path, tmp_path: Path) -> None:
    app = tmp_path / "app"
    assert gputune("export", "--context_binary", context, "--output_dir", app).code == 0
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    (snippet,) = re.findall(r"```c\n(.*?)```", (app / "README.md").read_text(), re.DOTALL)
    includes = "#include <stdio.h>\n#include <stdlib.h>\n#include <gputune.h>\n"
    (app / "own.c").write_text(f"{includes}int main(void) {{\n{snippet}return 0;\n}}\n")
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-c", "own.c", "-o", os.devnull]
    built = subprocess.run(command, cwd=app, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr


def test_a_package_takes_all_its_contexts_along(gputune: Gputune, context: Path, tmp_path: Path) -> None:
    other = small_context(tmp_path / "other.bin", device={**COMPUTING, "name": "Another"})
    assert gputune("package", context, other, "--output", tmp_path / "m.gtpkg").code == 0
    ran = gputune("export", "--context_binary", tmp_path / "m.gtpkg", "--output_dir", tmp_path / "app")
    assert ran.code == 0, ran.err
    assert "Made for: A GPU (7.1), Another (7.1)." in (tmp_path / "app" / "README.md").read_text()


def test_commands_of_the_page_quote_names_with_spaces(gputune: Gputune, context: Path, tmp_path: Path) -> None:
    named = context.rename(context.with_name("my model.bin"))
    assert gputune("export", "--context_binary", named, "--output_dir", tmp_path / "app").code == 0
    page = (tmp_path / "app" / "README.md").read_text()
    assert page.count("--context_binary 'my model.bin'") == 2
    assert "adb push build/gputune-run 'my model.bin' input_list.txt" in page


def test_an_onnx_file_takes_the_context_along_that_it_names(gputune: Gputune, context: Path, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    inner = context.rename(tmp_path / "inner" / "model.bin")
    EpContextFile(tmp_path / "model_ctx.onnx", embed=False).write(inner)
    ran = gputune("export", "--context_binary", tmp_path / "model_ctx.onnx", "--output_dir", tmp_path / "app")
    assert ran.code == 0, ran.err
    assert (tmp_path / "app" / "inner" / "model.bin").read_bytes() == inner.read_bytes()
    assert "--context_binary model_ctx.onnx" in (tmp_path / "app" / "README.md").read_text()
    inner.chmod(0o666)
    assert "[untrusted_file]" in refused(gputune, tmp_path / "model_ctx.onnx", tmp_path / "b", 8)


def refused(gputune: Gputune, context: Path, app: Path, code: int) -> str:
    ran = gputune("export", "--context_binary", context, "--output_dir", app)
    assert ran.code == code, ran.err
    (line,) = ran.err.splitlines()
    assert not app.exists() or not app.is_dir() or (app / "kept").exists()
    return line


def test_what_the_c_runtime_does_not_run_is_refused(gputune: Gputune, context: Path, tmp_path: Path) -> None:
    app = tmp_path / "app"
    assert "null device" in refused(gputune, small_context(tmp_path / "null.bin"), app, 8)
    assert "[untrusted_file]" in refused(gputune, writable(context), app, 8)
    assert "cannot be read" in refused(gputune, tmp_path / "no.bin", app, 8)


def writable(path: Path) -> Path:
    """A copy that every user can change."""
    copy = path.with_name("writable.bin")
    shutil.copy(path, copy)
    copy.chmod(0o666)
    return copy


def test_what_is_there_stays(gputune: Gputune, context: Path, tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "kept").touch()
    assert "not an empty folder" in refused(gputune, context, app, 6)
    assert "rename the context" in refused(gputune, context.rename(tmp_path / "Makefile"), tmp_path / "b", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "app"]
