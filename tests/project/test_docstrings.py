"""Test that the docstring of every module begins with a verb in the imperative."""

import ast
import tokenize
from pathlib import Path

import pytest

from .sources import ROOMS, ROOT, python_files

PLACES = (*ROOMS, "examples", "scripts", "tests")

NO_VERBS = """
a all an another any anything as at because both by each every everything for from gputune how however if in it its many
no nobody none of on one only our several some such that the their there these they this those three to two what
whatever when where whether which who whose why with without
"""
"""Words with which other sentences begin; `gputune` would be the name of a command."""


def is_imperative(text: str) -> bool:
    """Return whether the first word may be an imperative: neither a banned word, nor Returns, nor Returning."""
    word = text.split()[0].strip(",.:;") if text.split() else ""
    lower = word.lower()
    ending = (lower.endswith("s") and not lower.endswith("ss")) or (lower.endswith("ing") and lower != "bring")
    return word.isalpha() and word[0].isupper() and word[1:].islower() and lower not in NO_VERBS.split() and not ending


@pytest.mark.parametrize("text", ["Return a name.", "Bring it back.", "Pass it on.", "Read, gather and write a page."])
def test_an_imperative_is_accepted(text: str) -> None:
    assert is_imperative(text)


@pytest.mark.parametrize(
    "text",
    ["", "What is known.", "Whether it runs.", "The page.", "Returns a name.", "Lowering of Conv.", "read it.", "`x`."],
)
def test_other_beginnings_are_refused(text: str) -> None:
    assert not is_imperative(text)


def test_docstrings_of_modules_begin_with_a_verb() -> None:
    documented = [(path, module_docstring(path)) for path in python_files(*PLACES)]
    wrong = [
        f"{path.relative_to(ROOT).as_posix()}: {text[:80]}"
        for path, text in documented
        if text is not None and not is_imperative(text)
    ]
    assert wrong == []


def module_docstring(path: Path) -> str | None:
    """Return the docstring of a module, which may have none. Only the first token is read: to parse all files takes
    seconds."""
    nothing = (tokenize.ENCODING, tokenize.COMMENT, tokenize.NL)
    with path.open("rb") as file:
        first = next(token for token in tokenize.tokenize(file.readline) if token.type not in nothing)
    return str(ast.literal_eval(first.string)) if first.type == tokenize.STRING else None
