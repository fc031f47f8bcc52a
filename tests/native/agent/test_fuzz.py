"""Test a few cases of `scripts/fuzz agent`, each time the same, and that it would notice a reader that is wrong."""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputune.runtime import native
from gputune.server.agent.messages import REPLIES, ReadFiles, SetVotes
from stress.fuzz import cases
from stress.native import agent
from stress.native.agent import End, NativeFrames
from tests.native.compiling import BUILD, OPTIMISED, compiled
from tests.protocol.tampering import CUT, NAMES, Recorded

SANITIZED = (*OPTIMISED, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(
    scope="module",
    params=[pytest.param(OPTIMISED, id="plain"), pytest.param(SANITIZED, id="sanitizers", marks=pytest.mark.night)],
)
def program(c_compiler: str, request: pytest.FixtureRequest) -> Path:
    return compiled("agent", agent.PARTS, request.param)


@pytest.fixture
def reader(program: Path) -> Iterator[NativeFrames]:
    with NativeFrames(program) as opened:
        yield opened


def test_changed_streams_end_alike_in_both_languages(reader: NativeFrames) -> None:
    recorded = Recorded.made()
    ended = Counter(agent.examine(cases.chance_of(0, number), recorded, reader) for number in range(120))
    assert ended.keys() == {*NAMES, CUT, "whole"}
    whole = agent.hello() + b"".join(recorded.frames)
    assert reader.read(whole, 1000) == agent.read_by_python(whole)
    assert reader.read(whole, 1).taken == 1 + len(recorded.frames)


def test_a_reader_that_is_wrong_is_noticed(reader: NativeFrames, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded.made()
    monkeypatch.setattr(agent, "read_by_python", lambda stream: End(99, "", "whole"))
    with pytest.raises(cases.Broken, match="Python's reader ends with"):
        agent.examine(cases.chance_of(0, 0), recorded, reader)
    monkeypatch.setattr(NativeFrames, "read", lambda self, stream, step: End(99, "", "whole"))
    with pytest.raises(cases.Broken, match="99 frames were taken"):
        agent.examine(cases.chance_of(0, 0), recorded, reader)


FUZZED = set(REPLIES) - {ReadFiles, SetVotes}
"""Others read any file of the machine, or change its clocks."""


@pytest.mark.night
def test_what_has_not_arrived_may_not_be_read(c_compiler: str) -> None:
    name, wait = "frames.c", "if (piece > reader->have - reader->start - reader->hashed) return;"
    source = (native.FOLDER / "agent" / name).read_text(encoding="utf-8")
    assert wait in source
    impatient = BUILD / "impatient" / name  # always the same, so that it is compiled once
    impatient.parent.mkdir(parents=True, exist_ok=True)
    impatient.write_text(source.replace(wait, ""), encoding="utf-8")
    program = compiled("agent", [impatient, *(path for path in agent.PARTS if path.name != name)], SANITIZED)
    stream = agent.hello() + b"".join(Recorded.made().frames)
    with pytest.raises(RuntimeError, match="has crashed"), NativeFrames(program) as broken:
        broken.read(stream, 1)


def test_both_halves_run_and_say_what_they_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    monkeypatch.setattr(agent, "built", lambda *_: program)
    monkeypatch.setattr(cases, "MOST_BYTES", 1 << 46)  # AddressSanitizer takes most of it
    asked: list[dict[str, bytes]] = []

    def guided(sources: object, corpus: Path, *_: object) -> int:
        asked.append({path.name: path.read_bytes() for path in corpus.iterdir()})
        return 3

    monkeypatch.setattr(agent, "guided", guided)
    options = argparse.Namespace(seed=1, count=5, case=None, executions=10)
    assert agent.run(options) == 3
    frames, requests = asked
    assert len(frames) == agent.SMALL_FRAMES + 2
    assert all(any(kind.__name__.encode() in one for one in requests.values()) for kind in FUZZED)
    assert "5 cases, 0 broken" in capsys.readouterr().out
    assert agent.run(argparse.Namespace(seed=1, count=5, case=2, executions=10)) == 0
