"""Read what oclgrind says of kernels: races, accesses outside of memory, and reads of what was never written."""

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpu.drivers.running import ROOT, Outcome

_FINDING = re.compile(r"^(?P<what>\S.*)\n\tKernel: +(?P<kernel>\S+)\n(?P<rest>(?:\t.*(?:\n|\Z))*)", re.MULTILINE)
_ENTITY = re.compile(
    r"^\t(?:First entity|Second entity|Entity): +(?P<item>.*)\n\t  (?P<instruction>.*)"
    r"(?:\n\tAt line (?P<line>\d+) .*:\n\t  (?P<source>.*))?",
    re.MULTILINE,
)
_ADDRESS = re.compile(r" address 0x[0-9a-f]+")
_INCLUDE = re.compile(r'^#include "(\w+\.cl)"', re.MULTILINE)
NO_SOURCE = "(source not available)"


@dataclass(frozen=True)
class Access:
    """A work-item, and the line of the rendered text that it was at; place: the template's line, if it is known."""

    item: str
    line: int
    source: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.item} at {self.place or f'line {self.line} of the rendered text'}: {self.source}"


@dataclass(frozen=True)
class Finding:
    """What a kernel did wrong, with one work-item, or the two of a race."""

    what: str
    kernel: str
    accesses: tuple[Access, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """What findings with the same cause share."""
        return self.what, self.kernel, tuple((each.place, each.source) for each in self.accesses)

    def __str__(self) -> str:
        return "\n".join([f"{self.kernel}: {self.what}", *(f"    {each}" for each in self.accesses)])


@dataclass
class Gathered:
    """Findings with the same cause: the first, how many there are, and the tests that have them."""

    first: Finding
    count: int
    tests: list[str]

    def __str__(self) -> str:
        more = f" and {len(self.tests) - 1} tests more" if len(self.tests) > 1 else ""
        return f"{self.first}\n    {self.count} times, in {self.tests[0]}{more}"


def findings(text: str) -> Iterator[Finding]:
    """Return what oclgrind says of kernels in the text of a log."""
    for found in _FINDING.finditer(text):
        accesses = []
        for each in _ENTITY.finditer(found["rest"]):
            source = (each["source"] or NO_SOURCE).strip()
            accesses.append(Access(each["item"], int(each["line"] or 0), source, _place(found["kernel"], source)))
        yield Finding(_ADDRESS.sub("", found["what"]), found["kernel"], tuple(accesses))


def _place(kernel: str, source: str) -> str:
    """The lines with this text of the kernel's template and of those that it includes; empty if there is none."""
    return ", ".join(f"{name}:{line}" for name, text, line in _lines(kernel) if text == source)


@functools.cache
def _lines(kernel: str) -> list[tuple[str, str, int]]:
    """The names, texts and numbers of the lines from which a kernel can come."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "kernels" / "ops").glob("*.cl")}
    files = [name for name, text in texts.items() if f"void {kernel}(" in text]
    for name in files:
        files += [other for other in _INCLUDE.findall(texts[name]) if other not in files]
    return [(name, line.strip(), number) for name in files for number, line in enumerate(texts[name].splitlines(), 1)]


def gathered(outcomes: Iterable[Outcome]) -> list[Gathered]:
    """Return the findings of tests, those with the same cause together."""
    found: dict[tuple[object, ...], Gathered] = {}
    for outcome in outcomes:
        for finding in findings(outcome.stderr):
            group = found.setdefault(finding.key, Gathered(finding, 0, []))
            group.count += 1
            if outcome.test not in group.tests:
                group.tests.append(outcome.test)
    return list(found.values())
