"""Test that the first finding names the cause that was planted, and its share."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gputune.client.run.profiling import content_of, forms_in, lines_of
from gputune.client.viewer.analysis.findings import Finding, findings_of
from gputune.client.viewer.profile import Profile, profile_of
from gputune.client.viewer.schematic import RooflinePeaks
from gputune.client.viewer.sections.headline import tiles
from gputune.client.viewer.summary import summary_of
from gputune.runtime.profiling.records import Comparison, LoggedInference
from tests.client.pages.reading import words
from tests.client.viewer.made_up_plans import plan, schematic
from tests.runtime.profiling import made_up

PEAKS = RooflinePeaks(100.0, 10.0, "measured")
COUNT = 10
KERNEL_NS = 100_000
GRAPH = made_up.graph([f"op{place}" for place in range(COUNT)])
GAPS = [made_up.inference([KERNEL_NS] * COUNT, 60_000)]
AT_THE_PEAK = int(0.9 * PEAKS.flops_per_ns * KERNEL_NS)
"""Floating-point operations of an operation of KERNEL_NS that is close to its roofline."""


def profile(
    records: Sequence[LoggedInference],
    flops: int | Sequence[int] = AT_THE_PEAK,
    nbytes: int | Sequence[int] = 1000,
    comparisons: Sequence[Comparison] = (),
    alone_ns: float | None = None,
) -> Profile:
    log = made_up.read(made_up.written([GRAPH], records))
    log.comparisons.extend(comparisons)
    return profile_of([log], schematic(plan(GRAPH, None, flops, nbytes, alone_ns=alone_ns), peaks=PEAKS))


def findings(of: Profile) -> list[Finding]:
    return findings_of(of, of.graphs[0])


def causes(of: Profile) -> list[Finding]:
    """The findings but for the largest family of kernels, which is named whatever causes the time."""
    return [one for one in findings(of) if one.kind != "family"]


def named(of: Profile, kind: str) -> Finding:
    [found] = [one for one in findings(of) if one.kind == kind]
    return found


def share(took_ns: int, records: Sequence[LoggedInference]) -> float:
    return len(records) * took_ns / sum(one.elapsed_ns for one in records)


@pytest.mark.parametrize(
    ("unmarked", "rest"),
    [
        (
            "this driver has no cl_khr_kernel_clock",
            " against 2 µs by launches one by one, 0.50 times as long (0.50 to 0.50); no certain difference.",
        ),
        ("", "; all launches take 800 µs inside persistent kernels, 1 ms one by one."),
    ],
)
def test_the_usual_path_is_told_with_its_launches_or_why_they_have_no_times(unmarked: str, rest: str) -> None:
    graph = replace(GRAPH, persistent=1, unmarked=unmarked)
    records = [made_up.inference([KERNEL_NS] * COUNT), *([] if unmarked else [made_up.marked([80_000] * COUNT)])]
    log = made_up.read(made_up.written([graph], records))
    log.comparisons.append(Comparison(0, (3_000,), (2_000,), (1_000,), "persistent"))
    of = profile_of([log], None)
    assert named(of, "usual-form").text.startswith("The profiled form is not the usual one: ")
    assert rest in named(of, "usual-form").text
    assert len(of.graphs[0].inferences) == 1, "an inference with marks counts nowhere else"
    lines = lines_of(content_of(log, 0), forms_in(log, 0))
    (said,) = [one for one in lines if "inside persistent kernels" in one]
    assert said.endswith(f"kernels: {unmarked}") if unmarked else "take 0.800 ms together, in 1 inferences" in said


def test_the_largest_family_of_kernels_is_named() -> None:
    """By its op with a schematic, by its kernel without, and with the share that tables give it."""
    times_ns = [KERNEL_NS] * COUNT
    times_ns[3] = 20 * KERNEL_NS
    records = [made_up.inference(times_ns, number=number) for number in range(3)]
    of = profile(records)
    bare = profile_of(of.logs, None)
    graph = of.graphs[0]
    op, own = next(iter(graph.families.items()))
    found = named(of, "family")
    assert found.share == graph.share(sum(one.total_ns for one in own)) == max(one.share for one in findings(of))
    assert f"of an inference is kernels of {op} (" in found.text and "of which op3 takes most" in found.text
    kernel = GRAPH.launches[0].entry
    assert f"of an inference is kernels of {kernel} (" in named(bare, "family").text


def test_gaps_come_first() -> None:
    records = [made_up.inference([KERNEL_NS] * COUNT, 60_000, number=number) for number in range(5)]
    first = causes(profile(records))[0]
    assert (first.kind, first.share) == ("gaps", share(9 * 60_000, records))
    assert first.text.startswith("33 % of an inference is gaps between launches (0.54 ms of 1.62 ms): 10 launches; ")


def test_copies_come_first() -> None:
    records = [made_up.inference([KERNEL_NS] * COUNT, write_ns=400_000, read_ns=150_000)]
    first = causes(profile(records))[0]
    assert (first.kind, first.share) == ("copies", share(550_000, records))
    assert "4000 bytes of inputs, 400 bytes of outputs" in first.text


def test_one_slow_operation_comes_first() -> None:
    times_ns = [KERNEL_NS] * COUNT
    times_ns[3] = 20 * KERNEL_NS
    records = [made_up.inference(times_ns, number=number) for number in range(3)]
    first = causes(profile(records))[0]
    assert (first.kind, first.share) == ("operation", share(times_ns[3], records))
    assert "op3" in first.text
    assert "task of op3, tile 8; it takes 2 ms, at its roofline it would take 90 µs" in first.text


def test_it_does_without_a_schematic() -> None:
    times_ns = [KERNEL_NS] * COUNT
    times_ns[3] = 20 * KERNEL_NS
    log = made_up.read(made_up.written([GRAPH], [made_up.inference(times_ns)]))
    first = causes(profile_of([log], None))[0]
    assert (first.kind, first.share) == ("operation", share(times_ns[3], log.inferences))


def test_a_large_operation_at_its_roofline_is_no_cause() -> None:
    times_ns = [KERNEL_NS] * COUNT
    times_ns[3] = 20 * KERNEL_NS
    flops = [AT_THE_PEAK] * COUNT
    flops[3] *= 20
    kinds = [one.kind for one in findings(profile([made_up.inference(times_ns)], flops))]
    assert "operation" not in kinds


def test_memory_comes_first_where_it_bounds_most() -> None:
    nbytes = [int(0.9 * PEAKS.bytes_per_ns * KERNEL_NS)] * 7 + [1000] * 3
    records = [made_up.inference([KERNEL_NS] * COUNT)]
    first = causes(profile(records, [1000] * 7 + [AT_THE_PEAK] * 3, nbytes))[0]
    assert (first.kind, first.share) == ("memory-bound", share(7 * KERNEL_NS, records))
    assert "7 operations, 9 GB/s of 10" in first.text


def test_slow_kernels_are_not_memory_bound() -> None:
    nbytes = int(0.3 * PEAKS.bytes_per_ns * KERNEL_NS)
    kinds = [one.kind for one in causes(profile([made_up.inference([KERNEL_NS] * COUNT)], 1000, nbytes))]
    assert kinds[0] == "kernels"
    assert "memory-bound" not in kinds


def test_kernels_far_from_their_rooflines_come_first() -> None:
    records = [made_up.inference([KERNEL_NS] * COUNT)]
    first = causes(profile(records, AT_THE_PEAK // 3))[0]
    assert first.kind == "kernels"
    assert first.share == pytest.approx(share(7 * KERNEL_NS * COUNT // 10, records))


def test_kernels_that_take_longer_than_alone_are_named() -> None:
    records = [made_up.inference([KERNEL_NS] * COUNT)]
    found = named(profile(records, alone_ns=KERNEL_NS * 0.8), "alone")
    assert found.share == pytest.approx(share(KERNEL_NS * COUNT // 5, records))


def test_another_usual_form_is_named_with_both_times() -> None:
    one = Comparison(0, (2_020_000,) * 9, (2_000_000,) * 9, (1_000_000,) * 9, "persistent")
    records = [made_up.inference([KERNEL_NS] * COUNT)]
    of = profile(records, comparisons=[one])
    assert named(of, "usual-form") == causes(of)[0]
    said = "usually runs by persistent kernels, 1 ms against 2 ms by launches one by one, 0.50 times as long"
    assert said in causes(of)[0].text
    assert named(of, "overhead").text == "Recording adds +1.0 % (+1.0 % to +1.0 %) to an inference of 2 ms."
    same = replace(one, usual_form="launches", usual_ns=one.unprofiled_ns)
    at_level_basic = replace(one, usual_ns=one.unprofiled_ns)
    for each in (same, at_level_basic):
        assert "usual-form" not in [found.kind for found in findings(profile(records, comparisons=[each]))]


@pytest.mark.parametrize(
    ("usual_ns", "advice", "said"),
    [
        ([1_000_000], "the context usually runs by persistent kernels, which avoid them", "The profiled form is not"),
        ([5_000_000], "larger fusion groups would avoid them", "Launches one by one are faster here: "),
        ([1_000_000, 5_000_000], "larger fusion groups would avoid them", "(0.50 to 2.50); no certain difference"),
        ([], "larger fusion groups would avoid them", ""),
    ],
)
def test_advice_follows_what_was_measured(usual_ns: list[int], advice: str, said: str) -> None:
    log = made_up.read(made_up.written([replace(GRAPH, persistent=1)], GAPS))
    if usual_ns:
        usual = tuple(usual_ns * 20)
        log.comparisons.append(Comparison(0, (2_000_000,) * len(usual), (2_000_000,) * len(usual), usual, "persistent"))
    of = profile_of([log], None)
    assert named(of, "gaps").text.endswith(f"10 launches; {advice}.")
    form = next((one for one in findings(of) if one.kind == "usual-form"), None)
    assert said in form.text if form else not said
    assert form is None or ("persistent_kernels" in form.text) == said.startswith("Launches")


def test_what_recording_adds_is_one_figure_everywhere() -> None:
    """The machine is slower for a while, so that the medians have a ratio of 2, and pairs 1.04."""
    unprofiled = (*[10_000_000] * 8, *[20_000_000] * 7, *[10_000_000] * 5)
    profiled = (*[10_400_000] * 8, *[20_800_000] * 7, *[30_000_000] * 5)
    log = made_up.read(made_up.written([GRAPH], GAPS))
    log.comparisons.append(Comparison(0, profiled, unprofiled, unprofiled, "launches"))
    of = profile_of([log], None)
    [row] = summary_of(of)["comparisons"]
    assert (row["profiled_by_unprofiled"], row["unprofiled_ns"]) == (pytest.approx(1.04), 10_000_000)
    assert row["profiled_ns"] == row["unprofiled_ns"] * row["profiled_by_unprofiled"]
    said = "ecording adds +4.0 % (+4.0 % to +4.0 %) to an inference of 10 ms"
    assert said in named(of, "overhead").text
    content = content_of(log, 0)
    assert any(said in line for line in lines_of(content, forms_in(log, 0)))
    assert row == {"graph": 0, "inferences": 20, **content["comparison"]}
    assert "to 10 ms without a profiler; +4.0 % to +4.0 %" in words(tiles(of.graphs[0]))


def test_a_few_turns_tell_nothing_for_certain() -> None:
    few = Comparison(0, (2_000,) * 5, (1_000,) * 5, (3_000,) * 5, "persistent")
    of = profile([made_up.inference([KERNEL_NS] * COUNT)], comparisons=[few])
    for kind in ("overhead", "usual-form"):
        assert named(of, kind).text.endswith("; no certain difference.")
        assert named(of, kind).share == 0
    assert words(tiles(of.graphs[0])).count(": no certain difference") == 2


def test_preemptions_have_the_time_by_which_these_inferences_took_longer() -> None:
    records = [made_up.inference([KERNEL_NS] * COUNT, number=number) for number in range(4)]
    late = made_up.inference([KERNEL_NS] * COUNT, wake_up_ns=1_010_000)
    of = profile([*records, replace(late, preemptions={7: 2, 8: 1})])
    found = named(of, "preemptions")
    assert found.share == 1_000_000 / of.graphs[0].account.elapsed_ns
    assert "3 times, in 1 of 5 inferences" in found.text


def test_a_graph_that_did_not_run_has_no_findings() -> None:
    assert findings(profile([])) == []
