"""Test docs/gpus.md: what is kept of a day, and what its tables show; scripts/docs checks the page."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from gpu import estimated, keeping, page
from gpu.phases import baselines, models, recordings
from gputune.client.model.importer import read_model
from gputune.client.model.importer.multiply_adds import multiply_adds
from gputune.kernels.catalogue import family_of

HEAD = {"date": "2026-11-27T18:43:32+00:00", "card": "a card", "driver": "1.2", "rehearsal": False}


def phase(**found: Any) -> dict[str, Any]:
    return {**HEAD, **found}


def kept(tmp_path: Path, *days: dict[str, Any]) -> dict[str, Any]:
    paths = [tmp_path / f"{number}.json" for number in range(len(days))]
    for path, day in zip(paths, days, strict=True):
        path.write_text(json.dumps(day))
    target = tmp_path / "days" / "kept.json"
    assert page.keep(target, paths) == 0
    return keeping.read(target)


def test_a_kept_day_has_results_and_no_places(tmp_path: Path) -> None:
    facts = phase(machine={"home": "/root"}, device={"NAME": "a card", "said": "/tmp/x"})
    found = kept(tmp_path, {"outcomes": [], "facts": facts, "clblast": {"phase": "clblast"}})
    assert found == {
        "facts": {key: value for key, value in HEAD.items() if key != "rehearsal"} | {"device": {"NAME": "a card"}}
    }


def test_a_later_day_counts_more_unless_it_is_a_rehearsal(tmp_path: Path) -> None:
    days = [{"clblast": phase(products={"512": size}, rehearsal=size == 3)} for size in (1, 2, 3)]
    assert kept(tmp_path, *days)["clblast"]["products"] == {"512": 2}


def test_a_page_shows_networks_by_the_latest_way_in_which_they_were_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contenders = [{"name": "tuned", "time_ns": 2e6}, {"name": "untuned", "time_ns": 3e6}]
    compared = {"compare": {"summary": {"contenders": contenders}}}
    ran = {
        "net-run": {"summary": {"median_inference_ns": 13.2e6}},
        "context-binary-generator": {"summary": {"end_to_end": {"untuned_ns": 14.2e6}}},
    }
    torch = {"squeezenet1_1": {"eager": {"median": 2500}, "graph": {"fp32": {"median": 600}}}}
    uses = {key: {"median": value} for key, value in (("first use", 17.0), ("enqueue_us", 700), ("us", 750))}
    day = {
        "facts": phase(),
        "models": phase(squeezenet=compared, resnet50=ran),
        "baselines": phase(networks=torch),
        "chains": phase(squeezenet={**uses, "later use": {"n": 0}}),
        "kernel_tests": phase(tests={"counts": {"PASSED": 3}}),
    }
    kept(tmp_path, day)
    monkeypatch.setattr(page, "DAYS", tmp_path / "days")
    lines = page.page().splitlines()
    assert "## a card, 2026-11-27" in lines
    assert "| squeezenet | 3 | 2 | 2.5 | 0.6 | – | – |" in lines
    assert "| resnet50 | 14.2 | 13.2 | – | – | – | – |" in lines
    assert "| squeezenet | 17 | – | 700 | 750 |" in lines
    assert lines[lines.index("| passed |") + 2] == "| 3 |"
    assert not any("barrier" in line for line in lines)
    assert sum(line.startswith("a card, driver 1.2.") for line in lines) == 3


def network_multiply_adds(name: str) -> int:
    graph = read_model(models.MODELS[name][0]().path)
    return sum(multiply_adds(node, graph.tensors) for node in graph.nodes)


@pytest.mark.parametrize("name", ["squeezenet", pytest.param("mobilenet_v2", marks=pytest.mark.slow),
                                  pytest.param("resnet50", marks=pytest.mark.night)])  # fmt: skip
def test_networks_are_compared_with_those_that_compute_as_much(name: str) -> None:
    theirs = baselines.NETWORKS[page.NETWORKS[name]]
    assert network_multiply_adds(name) == pytest.approx(theirs, rel=0.03)


def test_every_network_that_is_shown_has_its_peer() -> None:
    assert {*models.MODELS} == {*page.NETWORKS}
    assert {*page.NETWORKS.values()} == {*baselines.NETWORKS}


def their_multiply_adds(group: str, name: str) -> int:
    """Of a product or convolution that PyTorch runs, by its name; of a softmax its elements."""
    sizes = [int(number) for number in re.findall(r"\d+", name)]
    if group == "products":
        return math.prod(sizes)
    if group == "convolutions":
        height, width, inputs, outputs, *kernel, stride, groups = sizes
        return height * width // stride**2 * outputs * inputs // groups * math.prod(kernel)
    return math.prod(sizes)


@pytest.mark.parametrize("name", page.SIMILAR)
def test_kernels_are_compared_with_those_that_compute_as_much(name: str) -> None:
    task = recordings.TASKS[name]
    theirs = their_multiply_adds(*page.SIMILAR[name])
    if task.op == "Softmax":
        assert math.prod((task.problem.outer, task.problem.axis, task.problem.inner)) == theirs
    else:
        assert family_of(task.op).work(task.problem).flops / 2 == pytest.approx(theirs, rel=0.1)


@pytest.mark.parametrize(("group", "name", "op", "problem"), [*estimated._problems()])
def test_estimates_are_compared_with_what_computes_as_much(group: str, name: str, op: str, problem: Any) -> None:
    assert family_of(op).work(problem).flops / 2 == pytest.approx(their_multiply_adds(group, name), rel=0.03)


def test_the_days_of_the_repository_name_no_machine() -> None:
    days = sorted(page.DAYS.glob("*.json"))
    assert days
    for path in days:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 200_000
        assert not re.search(r"/(tmp|usr|root|home|work|opt)\b|\b\d{1,3}(\.\d{1,3}){3}\b|Linux-", text)
