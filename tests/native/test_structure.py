"""Test that functions of C are short, and that neither headers nor files that call each other form a circle."""

import re

import pytest

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
        path.name: re.findall(r'^#include "(?:[\w.]+/)*(\w+\.h)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        for path in C_FILES
    }
    for name in ("graph", "inference", "launches", "persistent", "profile", "programs", "recorded", "states"):
        assert included[f"{name}.c"][0] == f"{name}.h"
    assert circles({name: set(others) for name, others in included.items()}) == {}


def circles(below: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return what is left when everything is taken away that stands on nothing, again and again."""
    while last := {name for name, others in below.items() if not others}:
        below = {name: others - last for name, others in below.items() if name not in last}
    return below


def calls(texts: dict[str, str]) -> dict[str, set[str]]:
    """Return by the name of each file the files whose functions it calls; a function that is only named is a hook."""
    made: dict[str, str] = {}
    called: dict[str, set[str]] = {}
    for name, text in texts.items():
        code = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', "", text, flags=re.DOTALL)
        heads = re.findall(r"^(static )?[A-Za-z_][\w *]*?(\w+)\([^;{]*?\)\s*\{", code, re.MULTILINE)
        made |= {function: name for static, function in heads if not static}
        called[name] = set(re.findall(r"\b(\w+)\(", code)) - {function for _, function in heads}
    return {name: {made[each] for each in functions if each in made} for name, functions in called.items()}


def test_calls_are_told_from_hooks_and_from_functions_of_a_file_itself() -> None:
    texts = {
        "a.c": "int f(int x,\n      int y) {\n    return g(x) + h(y);\n}\nstatic int h(int x) {\n    return x;\n}\n",
        "b.c": "int g(int x) {\n    return take(f, x); /* f(x) */\n}\nint h(int x) {\n    return x;\n}\n",
    }
    assert calls(texts) == {"a.c": {"b.c"}, "b.c": set()}
    assert circles({"a": {"b"}, "b": {"a", "c"}, "c": set(), "d": {"a"}}) == {"a": {"b"}, "b": {"a"}, "d": {"a"}}


@pytest.mark.parametrize("folder", ["src", "agent", "onnxruntime"])
def test_no_file_calls_what_calls_it(folder: str) -> None:
    files = (native.FOLDER / folder).rglob("*.c")
    assert circles(calls({path.name: path.read_text(encoding="utf-8") for path in files})) == {}
