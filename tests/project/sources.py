"""Describe the project's Python files: imports, lines and sizes of their parts.

Each file is parsed once, and its syntax tree is dropped: many trees would make the garbage collector slow for all later
tests.
"""

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("cache", "client", "core", "kernels", "runtime", "server")


def python_files(*folders: str) -> list[Path]:
    """All Python files below some of the project's folders."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if "__pycache__" not in path.parts)


@dataclass(frozen=True)
class Source:
    """What a file imports, with lines, wherever in the file it does so, and how large its parts are."""

    lines: int
    imports: tuple[tuple[int, str], ...]
    """A name that begins with dots is relative."""
    functions: tuple[tuple[str, int], ...]
    """Name and lines of each."""
    calls: tuple[tuple[int, int], ...]
    """Line and positional arguments of each."""


@functools.cache
def source(text: str) -> Source:
    """What a file of this text holds."""
    imports: list[tuple[int, str]] = []
    functions, calls = [], []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            calls.append((node.lineno, len(node.args)))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.name, (node.end_lineno or 0) - node.lineno + 1))
        elif isinstance(node, ast.Import):
            imports += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from gputune.server import protocol` imports a room by its last word.
            module = "." * node.level + (f"{node.module}." if node.module else "")
            imports += [(node.lineno, module + alias.name) for alias in node.names]
    return Source(text.count("\n"), tuple(imports), tuple(functions), tuple(calls))


def source_of(path: Path) -> Source:
    """What a file holds."""
    return source(path.read_text(encoding="utf-8"))
