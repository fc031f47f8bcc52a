"""Run the kernel tests in a simulator that sees races, accesses outside of memory and reads of what was never written.

    scripts/setup --gpu-tools
    scripts/gpu/race
    scripts/gpu/race --uninitialised tests/opencl/kernels/test_softmax.py -k row

The simulator is oclgrind. Whatever scripts/gpu/race does not know goes to pytest; without a path all kernel tests run.
Buffers have no guards here, so that they end where their memory ends. The exit code is 1 if there is a finding or if a
test fails, and 3 if oclgrind is not there.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gpu.compiling.tools import Tools
from gpu.drivers import running
from gpu.drivers.findings import Gathered, gathered
from gpu.drivers.found import NotThere, oclgrind
from gpu.drivers.running import DidNotRun, Outcome, run
from gpu.drivers.witness import EXCEPT, ONLY, SAMPLE
from gputune.client.progress import Progress, reporting
from gputune.core.json_text import json_text

OPTIMISED: Mapping[str, str] = {
    "OCLGRIND_DATA_RACES": "1",
    "OCLGRIND_MAX_ERRORS": "10000",
    # Of functions with `restrict`, Clang makes llvm.experimental.noalias.scope.decl, which oclgrind does not know.
    "OCLGRIND_BUILD_OPTIONS": "-Drestrict=",
}
PLAIN: Mapping[str, str] = {**OPTIMISED, "OCLGRIND_BUILD_OPTIONS": "-Drestrict= -cl-opt-disable"}
TRUE_IS_255 = "it takes `true` in vectors for 255, so that what Clang makes of a negation is true, too"
NOT_OPTIMISED: Mapping[str, str] = {
    "test_typed.py::test_every_function_is_right_also_at_the_ends_of_its_types[abs]": "it does not know llvm.abs.i8",
    "test_reduce.py::test_extremes_keep_nan": TRUE_IS_255,
    "test_reduce.py::test_work_items_share_a_row[ArgMax": TRUE_IS_255,
    "test_pointers.py::test_kernels_with_pointers_are_right[ArgMax": TRUE_IS_255,
    "test_pointers.py::test_vectors_begin_where_they_are_declared[ArgMax": TRUE_IS_255,
}
"""Tests whose kernels Clang must not optimise, since oclgrind gets what it makes of them wrong."""

LONG: Mapping[str, str] = {
    "test_pool.py::test_averages_of_many": "it adds up a million elements, one to two minutes long",
    "test_winograd.py::test_transforms_cost_less": "it has 512 channels, half a minute long",
    "test_tiled.py::test_tiles_and_groups_that_divide_nothing": "it tries many configurations, up to a minute long",
    "test_moves.py::test_a_model_of_them": "it tunes a whole model",
    "test_reduce.py::test_a_long_sum": "it adds up a million elements",
}
"""Tests that are in no sample, since they take too long here."""

TWO_THREADS = "two threads upload weights at once, which ends oclgrind when it looks for what was never written"
MODELS: Mapping[str, str] = {"test_attention.py": TWO_THREADS, "test_moves.py::test_a_model_of_them": TWO_THREADS}
"""Tests that do not run with --uninitialised."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests; returns the exit code."""
    parser = running.parser("scripts/gpu/race", __doc__)
    parser.add_argument(
        "--uninitialised", action="store_true",
        help="also find reads of local and private memory that was never written; takes five times as long",
    )  # fmt: skip
    parser.add_argument("--sample", action="store_true", help="run a test of each function and family, in a minute")
    options, others = parser.parse_known_args(arguments)
    try:
        with reporting(sys.stderr, "info") as progress:
            outcomes = race(others, options, progress)
    except (NotThere, DidNotRun) as error:
        print(f"scripts/gpu/race: error: {error}", file=sys.stderr)
        return 3
    found = gathered(outcomes)
    print(text(outcomes, found))
    if options.json:
        options.json.write_text(json_text(plain(outcomes, found), indent=1) + "\n", encoding="utf-8")
    return int(bool(found) or any(outcome.outcome == "failed" for outcome in outcomes) or not outcomes)


def race(arguments: Sequence[str], options: argparse.Namespace, progress: Progress) -> list[Outcome]:
    """Return what became of the tests that pytest's arguments choose. Raises NotThere and DidNotRun."""
    driver = oclgrind(Tools())
    left_out = list(LONG if options.sample else ())
    if options.sample:
        driver = driver.having(**{SAMPLE: "1"})
    if options.uninitialised:
        without = {EXCEPT: "\n".join([*MODELS, *left_out])}
        return run(
            driver.having(**PLAIN, **without, OCLGRIND_UNINITIALIZED="1"), arguments, options.processes, progress
        )
    optimised = driver.having(**OPTIMISED, **{EXCEPT: "\n".join([*NOT_OPTIMISED, *left_out])})
    plainly = driver.having(**PLAIN, **{ONLY: "\n".join(NOT_OPTIMISED)})
    return [outcome for each in (optimised, plainly) for outcome in run(each, arguments, options.processes, progress)]


def text(outcomes: Sequence[Outcome], found: Sequence[Gathered]) -> str:
    """Return the report for people."""
    lines = [str(group) for group in found]
    for outcome in outcomes:
        if outcome.outcome == "failed":
            lines.append(f"failed: {outcome.test}: {outcome.reason}")
    return "\n".join([*lines, f"{len(found)} findings; tests: {running.counts(outcomes)}"])


def plain(outcomes: Sequence[Outcome], found: Sequence[Gathered]) -> dict[str, Any]:
    """Return the report as JSON has it."""
    return {
        "findings": [
            {
                "what": group.first.what,
                "kernel": group.first.kernel,
                "accesses": [vars(each) for each in group.first.accesses],
                "count": group.count,
                "tests": group.tests,
            }
            for group in found
        ],
        "tests": [each.plain() for each in outcomes],
    }


if __name__ == "__main__":
    sys.exit(main())
