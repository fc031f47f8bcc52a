"""Test that programs name the features that they need, and that files of other contexts stay as they are."""

from dataclasses import replace
from pathlib import Path

import pytest

from gputune.core.errors import MalformedHeader
from gputune.runtime.context.format import open_context, read_header, write_context
from gputune.runtime.context.records import NEEDS, Context, ContextHeader


def test_a_program_that_needs_a_feature_says_so(context: Context, tmp_path: Path) -> None:
    programs = (*context.programs, replace(context.programs[0], needs=("subgroups", "x86.vpdpbusd")))
    write_context(tmp_path / "needing.bin", replace(context, programs=programs))
    with open_context(tmp_path / "needing.bin") as file:
        assert file.head[8] == 4
        assert file.header.requires == (NEEDS,)
        assert [program.needs for program in file.header.programs] == [(), ("subgroups", "x86.vpdpbusd")]
        plain = file.header.to_dict()["programs"]
        assert [program.get("needs") for program in plain] == [None, ["subgroups", "x86.vpdpbusd"]]


def test_a_context_without_needs_is_as_before(context_path: Path) -> None:
    header = read_header(context_path)
    assert header.requires == ()
    assert {*header.to_dict()["programs"][0]} == {"binary", "source", "options"}
    with open_context(context_path) as file:
        assert file.head[8] == 3


@pytest.mark.parametrize("needs", ["half", [7], ["a\0"], {"half": 1}])
def test_needs_that_are_no_list_of_texts_are_refused(context_path: Path, needs: object) -> None:
    fields = read_header(context_path).to_dict()
    fields["programs"][0]["needs"] = needs
    with pytest.raises(MalformedHeader, match=r"header: programs\[0\]\.needs"):
        ContextHeader.from_dict(fields)
