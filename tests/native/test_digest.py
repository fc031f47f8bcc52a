"""Test that digests of graphs in logs of the C runtime equal the schematics' digests: their JSON is Python's."""

import ctypes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputune.core.json_text import canonical_json
from tests.native.compiling import driver


@pytest.fixture(scope="module")
def library(c_compiler: None) -> ctypes.CDLL:
    found = driver("json", "sha256", "pool")
    found.json_of.restype = ctypes.c_void_p
    return found


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0")))
@example(text='/conv\\1"\n\t\r\b\f\x7f\x01/é€😀')
def test_texts_become_the_same_json(library: ctypes.CDLL, text: str) -> None:
    made = library.json_of(text.encode())
    try:
        assert ctypes.string_at(made).decode("ascii") == canonical_json(text)
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(made))
