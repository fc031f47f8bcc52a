"""Test docs/native.md: its errors are the errors of gputune.h, and its programs compile."""

import os
import re
import subprocess
from pathlib import Path

from gputune.runtime import native
from gputune.runtime.native.binding import Native
from tests.native.compiling import INCLUDE

PAGE = (Path(__file__).parents[2] / "docs" / "native.md").read_text(encoding="utf-8")
HEADER = (native.FOLDER / "include" / "gputune.h").read_text(encoding="utf-8")


def test_every_error_is_explained(native: Native) -> None:
    codes = re.findall(r"^    GPUTUNE_(\w+)(?: = 0)?,?$", HEADER, re.MULTILINE)
    assert codes[:2] == ["OK", "INVALID_ARGUMENT"]
    assert [native.code_name(number) for number in range(len(codes))] == [code.lower() for code in codes]
    table = PAGE.split("\n## Errors\n", 1)[1].split("\n## ", 1)[0]
    named = [name for row in re.findall(r"^\| ([a-z_, ]+) \|", table, re.MULTILINE) for name in row.split(", ")]
    assert named == ["name", *(code.lower() for code in codes[1:])]


def test_each_promise_names_its_tests() -> None:
    """As they are called."""
    table = PAGE.split("\n## What the runtime promises\n", 1)[1].split("\n## ", 1)[0]
    tests = Path(__file__).parents[1]
    defined = {
        name
        for path in tests.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", table))
    assert len(named) > 40
    assert named <= defined


def test_its_programs_compile(c_compiler: str, tmp_path: Path) -> None:
    programs = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
    (classes,) = re.findall(r"```cpp\n(.*?)```", PAGE, re.DOTALL)
    head = "#include <stdio.h>\n#include <gputune.h>\n"
    bodies = [program.replace("#include <gputune.h>\n", "") for program in programs]
    functions = [f"int run{place}(float *pixels, float *scores);\n" for place in range(len(bodies))]
    functions += [
        f"int run{place}(float *pixels, float *scores) {{\n(void)pixels, (void)scores;\n{body}return 0;\n}}\n"
        for place, body in enumerate(bodies)
    ]
    (tmp_path / "a.c").write_text(head + "".join(functions))
    (tmp_path / "a.cpp").write_text(f"#include <gputune.hpp>\nvoid run(float *pixels, float *scores) {{\n{classes}}}\n")
    for file, standard in (("a.c", "c99"), ("a.cpp", "c++11")):
        command = [c_compiler, f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
        command += [f"-I{INCLUDE}", "-c", file, "-o", os.devnull]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
