"""Test strategies on spaces whose best is known: what they propose, what they learn, and that the seed decides."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pytest

from gputune.client.tuning.search.strategies import Evaluation, Strategy
from gputune.client.tuning.search.strategies.auto import ESTIMATED, LEAD, Auto
from gputune.client.tuning.search.strategies.candidates import Candidates, Floats, Rows
from gputune.client.tuning.search.strategies.catalogue import STRATEGIES
from gputune.client.tuning.search.strategies.model_based import (
    BEST_EXPECTED,
    DRAWN,
    FIRST_IN_GROUPS,
    MOST_CANDIDATES,
    MOST_KNOWN,
    ModelBased,
)
from gputune.client.tuning.search.strategies.portfolio import MOST_ESTIMATED, UNLIKE, greedy_portfolio, unlike_best
from gputune.client.tuning.search.strategies.surrogate import GaussianProcess, Posterior
from gputune.client.tuning.search.strategies.views import View, views_of
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace, configuration_key

SPACE = TuningSpace(
    (
        Parameter("X", (1, 2, 4, 8, 16, 32), "first"),
        Parameter("Y", (1, 2, 4, 8, 16, 32), "second"),
        Parameter("ONE", (7,), "only one value"),
        Parameter("F", (0, 1), "a flag"),
    ),
    (Constraint(("X", "Y"), lambda x, y: x * y <= 256, "X*Y is at most 256"),),
)
SIZE = SPACE.size
BEST = {"X": 16, "Y": 4, "ONE": 7, "F": 1}


def cost(configuration: Configuration) -> float | None:
    """A bowl in the logarithms around BEST; X of 32 fails."""
    if configuration["X"] == 32:
        return None
    off = (math.log2(configuration["X"]) - 4) ** 2 + (math.log2(configuration["Y"]) - 2) ** 2
    return 100.0 * (1 + off + 3 * (1 - configuration["F"]))


def run(
    strategy: Strategy, evaluations: int, batch: int = 1, cost: Callable[[Configuration], float | None] = cost
) -> list[Evaluation]:
    done: list[Evaluation] = []
    while len(done) < evaluations and (asked := strategy.ask(min(batch, evaluations - len(done)))):
        assert len(asked) <= batch
        told = [Evaluation(configuration, cost(configuration)) for configuration in asked]
        strategy.tell(told)
        done += told
    return done


def keys(evaluations: Sequence[Evaluation]) -> list[str]:
    return [configuration_key(evaluation.configuration) for evaluation in evaluations]


each = pytest.mark.parametrize("name", sorted(STRATEGIES))
learning = pytest.mark.parametrize("name", ["auto", "descent", "evolution", "model_based"])


@each
@pytest.mark.parametrize("batch", [1, 8])
def test_the_whole_space_is_proposed_once(name: str, batch: int) -> None:
    found = keys(run(STRATEGIES[name](SPACE, 3, ()), 10 * SIZE, batch))
    assert sorted(found) == sorted(configuration_key(c) for c in SPACE.configurations())


@each
def test_the_seed_decides_everything(name: str) -> None:
    make = STRATEGIES[name]
    assert keys(run(make(SPACE, 5, ()), 20, 4)) == keys(run(make(SPACE, 5, ()), 20, 4))
    if name != "exhaustive":
        assert keys(run(make(SPACE, 5, ()), 20, 4)) != keys(run(make(SPACE, 6, ()), 20, 4))


@each
def test_what_was_told_is_not_proposed_and_other_spaces_do_not_matter(name: str) -> None:
    told = [configuration for configuration in SPACE.configurations() if configuration["F"] == 0]
    strategy = STRATEGIES[name](SPACE, 1, ())
    strategy.tell([Evaluation(configuration, cost(configuration)) for configuration in told])
    strategy.tell([Evaluation({"X": 3, "Y": 1, "ONE": 7, "F": 1}, 1.0), Evaluation({"OLD": 1}, None)])
    found = run(strategy, 10 * SIZE, 5)
    assert len(found) == SIZE - len(told)
    assert all(evaluation.configuration["F"] == 1 for evaluation in found)


@each
def test_a_space_where_everything_fails_is_walked_to_its_end(name: str) -> None:
    assert len(run(STRATEGIES[name](SPACE, 1, ()), 10 * SIZE, 8, lambda _: None)) == SIZE


@each
def test_costs_that_are_all_equal_and_spaces_of_one(name: str) -> None:
    assert len(run(STRATEGIES[name](SPACE, 1, ()), 10 * SIZE, 8, lambda _: 5.0)) == SIZE
    lonely = TuningSpace((Parameter("ONE", (7,), "only one value"),), ())
    assert len(run(STRATEGIES[name](lonely, 1, ()), 5, 1, lambda _: 5.0)) == 1


@learning
def test_the_best_is_found_long_before_chance_would(name: str) -> None:
    evaluations = math.ceil(0.35 * SIZE)  # by chance the median is half of the space
    searches = [keys(run(STRATEGIES[name](SPACE, seed, ()), evaluations)) for seed in range(1, 6)]
    assert sum(configuration_key(BEST) in search for search in searches) >= 3


GROUPS = TuningSpace(
    (
        Parameter("GX", (1, 2, 4, 8, 16, 32, 64, 128), "along a row", of_group=True),
        Parameter("GY", (1, 2, 3, 4, 8, 16, 32), "down the rows", of_group=True),
        Parameter("V", (1, 2, 4, 8), "vectors"),
    ),
    (),
)


def test_a_search_for_a_gpu_begins_with_likely_work_groups() -> None:
    """Of 64 to 512 work-items, a multiple of 32; starters and what is told count, and the model is free afterwards."""

    def likely(one: Configuration) -> bool:
        return 64 <= one["GX"] * one["GY"] <= 512 and one["GX"] * one["GY"] % 32 == 0

    begun = Auto(GROUPS, 1, group=GROUPS.group).ask(8)
    assert len(begun) == FIRST_IN_GROUPS and all(map(likely, begun))
    assert not all(map(likely, Auto(GROUPS, 1).ask(8))), "without the hint others come, too"
    known = Auto(GROUPS, 1, group=GROUPS.group)
    known.tell([Evaluation({"GX": 1, "GY": 1, "V": vectors}, 100.0 * vectors) for vectors in (1, 2, 4, 8)])
    assert len(known.ask(8)) == FIRST_IN_GROUPS - 4
    found = run(Auto(GROUPS, 1, group=GROUPS.group), 10**3, 8, lambda one: float(one["GX"] * one["GY"] * one["V"]))
    assert len(found) == GROUPS.size
    small = TuningSpace((Parameter("G", (1, 2, 4), "a small group", of_group=True),), ())
    assert len(run(Auto(small, 1, group=small.group), 8, 8, lambda one: float(one["G"]))) == 3


LARGE = TuningSpace(tuple(Parameter(name, tuple(range(10)), "one of three") for name in "ABC"), ())


def far(configuration: Configuration) -> float | None:
    """A bowl around A=5, B=3, C=6; two in five fail, none of them next to the best."""
    a, b, c = (configuration[name] for name in "ABC")
    return None if a >= 8 or c <= 1 else 100.0 + (a - 5) ** 2 + (b - 3) ** 2 + (c - 6) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "model_based"])
@pytest.mark.parametrize("batch", [1, 5])
def test_the_model_gets_near_the_best_of_a_thousand_and_avoids_what_fails(name: str, batch: int) -> None:
    searches = [run(STRATEGIES[name](LARGE, seed, ()), 25, batch, far) for seed in range(1, 6)]
    found = sorted(min(e.cost_ns for e in search if e.cost_ns is not None) for search in searches)
    assert found[2] == 100.0  # 25 at random find this once in forty times
    failures = sum(e.cost_ns is None for search in searches for e in search)
    assert failures / len(searches) < 8.5  # at random 9 or 10


def told(strategy: Strategy, configurations: Sequence[Configuration]) -> None:
    strategy.tell([Evaluation(configuration, cost(configuration)) for configuration in configurations])


POOR = [{**BEST, "X": 1, "Y": 1, "F": 0}, {**BEST, "X": 1, "Y": 2, "F": 0}, {**BEST, "X": 2, "Y": 1, "F": 0}]
"""Enough to compare winners with, and worse than those of the tests."""


def test_auto_tries_the_portfolio_in_its_order_in_turns_with_the_model() -> None:
    portfolio = [{**BEST, "Y": 8}, {**BEST, "X": 5}, {**BEST, "F": 0}, {**BEST, "Y": 8}, {**BEST, "X": 8}, {"OLD": 1}]
    valid = [portfolio[0], portfolio[2], portfolio[4]]
    strategy = Auto(SPACE, 1, portfolio)
    told(strategy, POOR)
    assert strategy.ask(5)[::2] == valid


def test_auto_compares_winners_with_something_first() -> None:
    """The first ones are those of a search that knows of no winners."""
    first = Auto(SPACE, 1, [BEST]).ask(LEAD + 1)
    assert first[LEAD] == BEST
    assert first[:LEAD] == Auto(SPACE, 1).ask(LEAD)


def test_auto_leaves_a_portfolio_that_does_worse_than_others() -> None:
    portfolio = [{**BEST, "X": 1, "F": 0, "Y": y} for y in (1, 2, 4, 8)]
    strategy = Auto(SPACE, 1, portfolio)
    told(strategy, [BEST, {**BEST, "X": 2}, {**BEST, "X": 4}])
    asked = keys(run(strategy, 8))
    assert asked[:3:2] == [configuration_key(one) for one in portfolio[:2]]
    assert not set(asked) & {configuration_key(one) for one in portfolio[2:]}


def test_auto_goes_down_from_a_good_portfolio() -> None:
    """The best is two steps from what won elsewhere, in a space of a thousand."""
    portfolio = [{"A": 5, "B": 4, "C": 7}, {"A": 7, "B": 7, "C": 7}]
    for seed in range(1, 4):
        assert min(e.cost_ns for e in run(Auto(LARGE, seed, portfolio), 20, 1, far) if e.cost_ns is not None) == 100.0


def test_auto_tries_strangers_after_the_portfolio_one_at_a_time() -> None:
    near, one, two = {**BEST, "F": 0}, {**BEST, "Y": 8}, BEST
    strategy = Auto(SPACE, 1, [near], [one, near, two])
    told(strategy, POOR)
    batch = strategy.ask(6)
    assert batch[:3:2] == [near, one] and two not in batch, "the next waits for a result"
    strategy.tell([Evaluation(each, 10.0 if each == one else 500.0) for each in batch])
    assert strategy.ask(2)[1] == two


@pytest.mark.parametrize("known", ["winner", "estimate"])
def test_a_stranger_that_is_tried_anyway_does_not_judge_the_others(known: str) -> None:
    """It is a winner near by as well, or one of the estimate's best, and nothing depends on how it does."""
    doubtful, stranger = {"A": 1, "B": 0, "C": 0}, {"A": 8, "B": 8, "C": 8}
    winners, estimate = ([doubtful], None) if known == "winner" else ([], by_sum)
    strategy = Auto(LARGE, 1, winners, [doubtful, stranger], estimate)
    strategy.tell([Evaluation({"A": a, "B": 9, "C": 9}, 100.0) for a in range(LEAD)])
    asked = run(strategy, 6, 1, lambda one: 900.0 if one == doubtful else 500.0)
    assert {configuration_key(doubtful), configuration_key(stranger)} <= {*keys(asked)}


@pytest.mark.parametrize("fails", [False, True])
def test_auto_forgets_a_stranger_that_is_not_better_than_all(fails: bool) -> None:
    """The others are not tried, and the model goes on as if there were none."""
    strangers = [{**BEST, "X": 32} if fails else {**BEST, "X": 1, "Y": 8}, {**BEST, "X": 1}]
    cold, strategy = Auto(SPACE, 1), Auto(SPACE, 1, (), strangers)
    for each in (cold, strategy):
        told(each, [*POOR, {**BEST, "Y": 2}])
    assert strategy.ask(1) == strangers[:1]
    told(strategy, strangers[:1])
    cold._candidates.take([cold._candidates.row(strangers[0]) or 0])
    assert keys(run(strategy, 12)) == keys(run(cold, 12))


def test_auto_learns_of_a_stranger_that_is_better_than_all() -> None:
    strategy = Auto(SPACE, 1, (), [{**BEST, "Y": 8}])
    told(strategy, POOR)
    told(strategy, strategy.ask(1))
    assert strategy._candidates.best() == strategy._candidates.row({**BEST, "Y": 8})


def by_sum(configuration: Configuration) -> float:
    """An estimate: the smaller, the better; nothing is known where A is 0."""
    return math.inf if configuration["A"] == 0 else float(sum(configuration.values()))


def test_auto_begins_with_the_best_by_the_estimate_no_two_alike() -> None:
    asked = Auto(LARGE, 1, estimate=by_sum).ask(ESTIMATED + 1)
    assert asked[:4] == [{name: value + (name == "A") for name in "ABC"} for value in range(4)]
    for one, other in combinations(asked[:ESTIMATED], 2):
        assert sum(one[name] != other[name] for name in "ABC") >= UNLIKE
    assert not any(one["A"] == 0 for one in asked[:ESTIMATED])


def test_winners_take_turns_with_the_estimate() -> None:
    winner, stranger = {"A": 9, "B": 9, "C": 9}, {"A": 8, "B": 8, "C": 8}
    alone = Auto(LARGE, 1, estimate=by_sum).ask(ESTIMATED)
    asked = Auto(LARGE, 1, [winner], [stranger], by_sum).ask(ESTIMATED + 2)
    assert asked == [*alone[:LEAD], winner, alone[LEAD], stranger, *alone[LEAD + 1 :]]


def test_the_estimate_asks_for_nothing_again() -> None:
    alone = Auto(LARGE, 1, estimate=by_sum).ask(ESTIMATED)
    strategy = Auto(LARGE, 1, estimate=by_sum)
    strategy.tell([Evaluation(alone[0], 5.0), Evaluation(alone[2], 6.0)])
    assert strategy.ask(ESTIMATED - 2) == [alone[1], *alone[3:]]


@pytest.mark.parametrize("best", [0, 4, 8])
def test_of_a_large_space_some_is_estimated_wherever_the_best_lies(best: int) -> None:
    """A is what varies most slowly, so its values lie one behind the other."""
    seen: list[int] = []

    def by_distance(configuration: Configuration) -> float:
        seen.append(configuration["A"])
        return abs(seen[-1] - best)

    candidates = Candidates(TuningSpace(tuple(Parameter(name, tuple(range(9)), "one of five") for name in "ABCDE"), ()))
    rows = unlike_best(candidates, by_distance, 4)
    assert MOST_ESTIMATED / 2 < len(seen) <= MOST_ESTIMATED
    assert max(map(seen.count, range(9))) <= min(map(seen.count, range(9))) + 1
    assert candidates.codes[rows, 0].tolist() == [best] * 4


def test_all_of_a_small_space_is_estimated() -> None:
    few = TuningSpace((Parameter("A", (3, 1, 2), "the only one"),), ())
    assert unlike_best(Candidates(few), lambda one: one["A"], 2) == [1, 2]


@pytest.mark.parametrize("batch", [1, 4])
def test_the_model_looks_elsewhere_where_nothing_better_was_found_for_long(batch: int) -> None:
    """After twenty of a plateau the next is far from all of it; beside the first one that is better comes the next."""
    told = [{"A": a, "B": b, "C": 2} for a in range(2) for b in range(10)]
    model = ModelBased(LARGE, 1)
    model.tell([Evaluation(c, 101.0) for c in told])
    assert least_apart(model.ask(batch)[0], told) >= 4
    better = {"A": 1, "B": 5, "C": 3}
    model.tell([Evaluation(better, 90.0)])
    assert least_apart(model.ask(batch)[0], [*told, better]) == 1


def least_apart(one: Configuration, others: Sequence[Configuration]) -> int:
    """Steps of single parameters to the nearest of the others."""
    return min(sum(abs(one[name] - other[name]) for name in one) for other in others)


def test_candidates_number_values_by_rank_and_know_their_neighbours() -> None:
    candidates = Candidates(SPACE)
    row = candidates.row(BEST)
    assert row is not None and len(candidates) == SIZE
    assert candidates.levels == (6, 6, 2)
    assert candidates.codes[row].tolist() == [4, 2, 1]
    assert candidates.points[row].tolist() == [4 / 5, 2 / 5, 1.0]
    lines = {column: [candidates.codes[other].tolist() for other in rows] for column, rows in candidates.lines(row)}
    assert [codes[0] for codes in lines[0]] == [3, 5, 2, 1, 0]
    assert [codes[1] for codes in lines[1]] == [1, 3, 0, 4]  # Y of 32 is not legal with X of 16
    assert candidates.row({**BEST, "Y": 32}) is None


def test_views_are_parameters_and_products_of_sizes() -> None:
    candidates = Candidates(SPACE)
    views = views_of(candidates)
    assert len(views) == 4  # X, Y, F and X*Y; a flag is no size, and of powers of two the exponent is the logarithm
    row, same, other = (candidates.row({**BEST, "X": x, "Y": y}) for x, y in ((16, 4), (8, 8), (16, 8)))
    product = views[3]
    assert product.codes[row] == product.codes[same] != product.codes[other]
    assert product.places[product.codes[row]] == pytest.approx(6 / 8)  # of 1 to 256, in logarithms


def process_over(points: Floats) -> GaussianProcess:
    views = [View.of(column) for column in points.T]
    return GaussianProcess(points, views)


def test_the_process_knows_what_it_was_told_and_is_unsure_far_away() -> None:
    line = np.linspace(0, 1, 17)[:, None] * [1.0, 0.0]
    points = np.vstack([line, [[0.5, 1.0]]])
    process = process_over(points)
    known = np.arange(0, 17, 2)
    for _ in range(5):
        process.fit(known, 3 + np.sin(4 * points[known, 0]))
    posterior = process.at(np.array([8, 9, 17]))
    assert posterior.mean[:2] == pytest.approx(3 + np.sin([2.0, 2.25]), abs=0.1)
    before = posterior.deviation
    assert before[0] < before[2]
    posterior.believe(2)
    after = posterior.deviation
    assert after[2] < 0.5 * before[2]
    assert after[0] == pytest.approx(before[0], rel=0.3)


def test_the_fit_climbs_along_the_slope_of_the_likelihood() -> None:
    chance = np.random.default_rng(0)
    points = chance.random((12, 2))
    process = process_over(points)
    process.fit(np.arange(12), np.sin(5 * points[:, 0]) + points[:, 1])
    settings = process._expected
    likelihood, slope = process._likelihood(settings)
    steps = 1e-5 * np.eye(len(settings))
    risen = [process._likelihood(settings + step)[0] - process._likelihood(settings - step)[0] for step in steps]
    assert slope == pytest.approx(np.array(risen) / 2e-5, abs=1e-5)
    assert process._likelihood(process._settings)[0] > likelihood


def test_what_a_sum_of_effects_says_of_one_parameter_holds_everywhere() -> None:
    """Each parameter was seen alone, never together; the sum of what they do is told for where both change."""
    steps = np.linspace(0, 1, 6)
    points = np.array([[x, y] for x in steps for y in steps])
    values = 2 * points[:, 0] + np.cos(3 * points[:, 1])
    process = process_over(points)
    known = np.flatnonzero((points == 0).any(axis=1))
    for _ in range(5):
        process.fit(known, values[known])
    far = np.flatnonzero((points > 0.5).all(axis=1))
    expected = process.expected_at(far)
    assert np.corrcoef(expected, values[far])[0, 1] > 0.9


def test_the_model_works_on_no_more_than_a_batch_has_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    fit, at = GaussianProcess.fit, GaussianProcess.at

    def seen_fit(process: GaussianProcess, rows: Rows, values: Floats) -> None:
        sizes.append(len(rows))
        fit(process, rows, values)

    def seen_at(process: GaussianProcess, rows: Rows) -> Posterior:
        sizes.append(len(rows))
        return at(process, rows)

    monkeypatch.setattr(GaussianProcess, "fit", seen_fit)
    monkeypatch.setattr(GaussianProcess, "at", seen_at)
    space = TuningSpace(tuple(Parameter(name, tuple(range(1, 9)), "one of four") for name in "ABCD"), ())
    model = ModelBased(space, 1)
    costs = [Evaluation(c, float(c["B"] * c["C"] + c["D"])) for c in space.configurations()]
    model.tell(costs[: 3 * MOST_KNOWN])
    assert len(model.ask(8)) == 8
    assert sizes[0] == MOST_KNOWN
    assert BEST_EXPECTED <= sizes[1] <= BEST_EXPECTED + DRAWN


def test_of_a_large_space_the_model_looks_at_some_and_at_all_beside_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Rows] = []
    expected_at = GaussianProcess.expected_at

    def seen_expected_at(process: GaussianProcess, rows: Rows) -> Floats:
        seen.append(rows)
        return expected_at(process, rows)

    monkeypatch.setattr(GaussianProcess, "expected_at", seen_expected_at)
    space = TuningSpace(tuple(Parameter(name, tuple(range(1, 9)), "one of four") for name in "ABCD"), ())
    assert space.size > 2 * MOST_CANDIDATES
    model = ModelBased(space, 1)
    best = {"A": 3, "B": 2, "C": 5, "D": 8}
    told = [best, {**best, "A": 4}, {**best, "B": 7, "C": 1}, {**best, "D": 1, "C": 2}]
    model.tell([Evaluation(c, 10.0 + place) for place, c in enumerate(told)])
    beside = {model.candidates.row({**best, name: value}) for name in best for value in range(1, 9)}
    beside -= {model.candidates.row(c) for c in told}
    assert len(model.ask(1)) == 1
    [rows] = seen
    assert beside <= set(rows.tolist())
    assert MOST_CANDIDATES <= len(rows) <= MOST_CANDIDATES + len(beside)


def test_a_portfolio_serves_every_device_and_ends_when_nothing_helps() -> None:
    a, b, c, d = ({**BEST, "X": x} for x in (1, 2, 4, 8))
    first = [(a, 10.0), (b, 100.0), (c, 20.0), (d, None)]
    second = [(a, 100.0), (b, 10.0), (c, 20.0), (d, 15.0)]
    # Half of the optimum everywhere beats all here and a tenth there; d failed on one device.
    assert greedy_portfolio([first, second], 1) == [c]
    assert greedy_portfolio([first, second], 9) in ([c, a, b], [c, b, a])
    assert greedy_portfolio([first, [(a, None)]], 9) == [a]
    assert greedy_portfolio([], 3) == []
