"""Test that functions of C are short, that headers form no circle, and that the runtime exports its header."""

import re

from gputune.runtime import native

MOST_LINES_OF_A_FUNCTION = 59
MOST_COLUMNS = 120

AGENT = sorted((native.FOLDER / "agent").iterdir())
C_FILES = [native.FOLDER / path for path in native.files() if path.suffix in (".c", ".h")] + AGENT


def functions(text: str) -> dict[str, int]:
    """The lines of each function: from the line where its head begins to the brace that ends it, both at the margin."""
    found = {}
    begun, head = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"[A-Za-z_]", line):
            if not head or head.endswith((";", "}")):
                begun, head = number, ""
            head += line
        elif head and not head.endswith((";", "}", "{")):
            head += line
        if line.startswith("}") and (name := re.search(r"(\w+)\s*\(", head)) and " = " not in head:
            found[name[1]] = number - begun + 1
        if line.startswith("}"):
            head = ""
    return found


def test_the_lines_of_a_function_are_counted() -> None:
    text = (
        "int a;\nstatic int f(int x,\n             int y) {\n    if (x) {\n    }\n}\nstruct s {\n};\nint g(void) {\n}\n"
    )
    assert functions(text) == {"f": 5, "g": 2}


def test_functions_are_short() -> None:
    long = [
        f"{path.name}: {name} has {count} lines"
        for path in C_FILES
        for name, count in functions(path.read_text(encoding="utf-8")).items()
        if count > MOST_LINES_OF_A_FUNCTION
    ]
    assert long == []


def test_lines_are_short() -> None:
    wide = [
        f"{path.name}:{number}"
        for path in C_FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MOST_COLUMNS or "\t" in line
    ]
    assert wide == []


def test_each_part_of_a_graph_has_a_header_and_no_header_includes_itself() -> None:
    included = {
        path.name: re.findall(r'^#include "(\w+\.h)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        for path in C_FILES
    }
    for name in ("graph", "inference", "persistent", "profile", "programs", "recorded"):
        assert included[f"{name}.c"][0] == f"{name}.h"
    left = {name: set(others) for name, others in included.items()}
    while last := {name for name, others in left.items() if not others}:
        left = {name: others - last for name, others in left.items() if name not in last}
    assert not left, "a circle"
