"""Run the kernel tests on drivers that are not installed here: Intel's runtime for CPUs, and Mesa's rusticl.

    scripts/setup --gpu-tools
    scripts/gpu/third
    scripts/gpu/third --driver intel tests/opencl/kernels/test_softmax.py -k row

Other compilers than PoCL's see other faults of kernels. Intel's runtime runs all kernel tests. rusticl compiles for one
to two seconds a program, so it runs a sample of each test function and family, always the same. Whatever
scripts/gpu/third does not know goes to pytest. The exit code is 1 if a test fails that is not in the table of
scripts/gpu/drivers/known.py, or if a whole run shows that an entry is not needed, and 3 if no driver is there.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu.compiling.tools import Tools
from gpu.drivers import running
from gpu.drivers.found import THIRD, NotThere
from gpu.drivers.known import KNOWN
from gpu.drivers.running import DidNotRun, Outcome, run
from gpu.drivers.witness import SAMPLE, short
from gputune.client.progress import reporting
from gputune.core.json_text import json_text

SAMPLED = {"rusticl": 1}
"""How many tests of each function and family run on a driver."""


@dataclass(frozen=True)
class Result:
    """What became of the tests on a driver; whole: whether they are all that it should run."""

    driver: str
    outcomes: Sequence[Outcome]
    whole: bool

    @property
    def known(self) -> Mapping[str, str]:
        """The tests that may fail on the driver, by the beginnings of their names, and why."""
        return KNOWN.get(self.driver, {})

    @property
    def failed(self) -> list[Outcome]:
        """The tests that failed, those of the table, too."""
        return [outcome for outcome in self.outcomes if outcome.outcome == "failed"]

    @property
    def unknown(self) -> list[Outcome]:
        """The tests that failed and are not in the table."""
        return [outcome for outcome in self.failed if not short(outcome.test).startswith(tuple(self.known))]

    @property
    def unneeded(self) -> list[str]:
        """The entries of the table for which no test failed, of a whole run."""
        failed = [short(outcome.test) for outcome in self.failed]
        return [name for name in self.known if self.whole and not any(test.startswith(name) for test in failed)]

    def text(self) -> str:
        """Return the report for people."""
        lines = [f"{self.driver}: failed: {each.test}: {each.reason}" for each in self.unknown]
        failed = [short(outcome.test) for outcome in self.failed]
        for name, why in self.known.items():
            if number := sum(test.startswith(name) for test in failed):
                lines.append(f"{self.driver}: {number} tests fail as is known: {name}: {why}")
        lines += [
            f"{self.driver}: no test failed for the entry {name} of scripts/gpu/drivers/known.py"
            for name in self.unneeded
        ]
        return "\n".join([*lines, f"{self.driver}: {running.counts(self.outcomes)}"])

    def plain(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        tests = [each.plain() for each in self.outcomes]
        return {"driver": self.driver, "tests": tests, "unknown": [each.test for each in self.unknown]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests; returns the exit code."""
    parser = running.parser("scripts/gpu/third", __doc__)
    parser.add_argument("--driver", choices=list(THIRD), help="run on this driver only")
    options, others = parser.parse_known_args(arguments)
    results = []
    for name in [options.driver] if options.driver else THIRD:
        try:
            driver = THIRD[name](Tools())
            sample = {SAMPLE: str(SAMPLED[name])} if name in SAMPLED and not others else {}
            with reporting(sys.stderr, "info") as progress:
                outcomes = run(driver.having(**sample), others, options.processes, progress)
        except (NotThere, DidNotRun) as error:
            print(f"scripts/gpu/third: {name} is left out: {error}", file=sys.stderr)
            continue
        results.append(Result(name, outcomes, whole=not others))
        print(results[-1].text())
    if options.json:
        options.json.write_text(json_text([each.plain() for each in results], indent=1) + "\n", encoding="utf-8")
    if not any(result.outcomes for result in results):
        return 3
    return int(any(result.unknown or result.unneeded for result in results))


if __name__ == "__main__":
    sys.exit(main())
