"""Test that an operation has the same share wherever it is shown: its mean by that of whole inferences."""

import re
from pathlib import Path

import pytest

from gputune.client.run.profiling import content_of, lines_of
from gputune.client.viewer.profile import Profile, profile_of
from gputune.client.viewer.sections.document import sections
from tests.client.commands import Gputune
from tests.client.pages.reading import words
from tests.runtime.profiling import made_up

TIMES_NS = ([10_000, 70_000], [12_000, 60_000], [900_000, 80_000])
"""Of two operations in three inferences: the first has the smaller median, and the larger mean."""
NAMES = ("seldom", "often")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    graph = made_up.graph(NAMES)
    records = [made_up.inference(list(times), 50_000, number=number) for number, times in enumerate(TIMES_NS)]
    path = tmp_path / "profile.log"
    path.write_bytes(made_up.written([graph], records))
    return path


def shares(profile: Profile) -> dict[str, float]:
    whole_ns = sum(one.elapsed_ns for one in profile.graphs[0].inferences)
    totals = {name: sum(times[place] for times in TIMES_NS) for place, name in enumerate(NAMES)}
    return {name: total_ns / whole_ns for name, total_ns in totals.items()}


def test_a_share_is_the_same_wherever_it_is_shown(log: Path, gputune: Gputune) -> None:
    read = made_up.read(log.read_bytes())
    profile = profile_of([read], None)
    wanted = shares(profile)
    content = content_of(read, 0)
    assert {one["operation"]: one["share"] for one in content["operations"]} == pytest.approx(wanted)
    table = lines_of(content, None)
    terminal = gputune("profile-viewer", "--input_log", log).out.splitlines()
    page = words(sections(profile))
    for name, share in wanted.items():
        assert any(f"{share:.1%}  {name}" in line for line in table), table
        (row,) = (line.split() for line in terminal if line.startswith(name))
        assert row[-1] == f"{share:.1%}"
        assert re.search(rf"\b{name}\b[^%]*? {100 * share:.1f}", page), name
    assert [line.split()[-1] for line in table[1:3]] == ["seldom", "often"], "the largest share comes first"
    assert sum(wanted.values()) < 1
