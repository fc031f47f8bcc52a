"""Say what became of kernels, for people and for tools."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu.checking.cases import RANDOM
from gpu.checking.exceptions import KNOWN, Known, Place, needless
from gpu.checking.rules import Look, broken
from tool import table


def place(look: Look, rule: str) -> Place:
    """Return where a kernel breaks a rule."""
    problem = look.case.problem
    return Place(problem.title, problem.name, look.kernel.entry, look.case.device.name, rule)


HEAD = ("family and device", "kernels", "registers", "spill", "stack", "wide accesses", "multiply-adds per load")


@dataclass(frozen=True)
class Fault:
    """A rule that a kernel breaks, and the reason of the exception that excuses it; empty if none does."""

    look: Look
    rule: str
    why: str
    excuse: str

    @property
    def place(self) -> Place:
        """Where the rule is broken."""
        return place(self.look, self.rule)


@dataclass
class Report:
    """What a run has seen. whole: whether it was over everything, so that exceptions can be found needless."""

    whole: bool
    left_out: Sequence[str] = ()
    known: Sequence[Known] = KNOWN
    looks: list[Look] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def add(self, look: Look) -> None:
        """Add a kernel. Random configurations break no rule: what they spill is listed."""
        self.looks.append(look)
        if look.case.kind == RANDOM:
            return
        for rule, why in broken(look).items():
            excuse = next((each.reason for each in self.known if each.excuses(place(look, rule))), "")
            self.faults.append(Fault(look, rule, why, excuse))

    @property
    def unexcused(self) -> list[Fault]:
        """The faults that no exception excuses."""
        return [fault for fault in self.faults if not fault.excuse]

    @property
    def needless(self) -> list[Known]:
        """The exceptions that nothing needs, as far as this run can tell."""
        return needless({fault.place for fault in self.faults}, self.known) if self.whole else []

    @property
    def failed(self) -> bool:
        """Whether a kernel or an exception has to change."""
        return bool(self.unexcused or self.needless)

    def text(self) -> str:
        """Return it for people."""
        return "\n".join(self._lines())

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "left_out": list(self.left_out),
            "kernels": [_plain(look) for look in self.looks],
            "faults": [_plain(each.look) | {"rule": each.rule, "why": each.why, "excuse": each.excuse}
                       for each in self.faults],
            "needless": [f"{each.family}, {each.rule}" for each in self.needless],
        }  # fmt: skip

    def _lines(self) -> Iterator[str]:
        yield table(HEAD, list(_rows(self.looks)))
        for text in self.left_out:
            yield f"left out: {text}"
        spilled = [look for look in self.looks if look.case.kind == RANDOM and look.facts and look.facts.spills]
        yield from _titled("random configurations that spill", map(_spill, spilled))
        yield from _titled("known", _excused(self.faults))
        yield from _titled(
            "rules broken without an exception",
            (f"{each.look.case.title}, {each.look.kernel.entry}: {each.rule}, {each.why}" for each in self.unexcused),
        )
        yield from _titled(
            "exceptions that nothing needs any more",
            (f"{each.family}, {each.rule}: {each.reason}" for each in self.needless),
        )


def _titled(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield from ("", f"{title} ({len(found)}):", *(f"  {line}" for line in found))


def _spill(look: Look) -> str:
    assert look.facts is not None
    return f"{look.case.title}, {look.kernel.entry}: {look.facts.spills}"


def _excused(faults: Sequence[Fault]) -> Iterator[str]:
    """A line for each rule and reason: of which families how many kernels, and on which devices."""
    groups: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for fault in faults:
        if fault.excuse:
            groups[fault.rule, fault.excuse].append(fault)
    for (rule, excuse), found in sorted(groups.items()):
        kernels = Counter(fault.look.case.problem.family for fault in found)
        counts = ", ".join(f"{family} {number}" for family, number in kernels.items())
        devices = dict.fromkeys(fault.look.case.device.name for fault in found)
        yield f"{rule}: {excuse}; {counts} on {', '.join(devices)}"


def _rows(looks: Sequence[Look]) -> Iterator[list[str]]:
    groups: dict[tuple[str, str], list[Look]] = defaultdict(list)
    for look in looks:
        if look.case.kind != RANDOM:
            groups[look.case.problem.title, look.case.device.name].append(look)
    for (family, device), found in sorted(groups.items()):
        facts = [look.facts for look in found if look.facts is not None]
        registers = [each.registers for each in facts if each.registers is not None]
        wide = [100 * each.wide_share for each in facts if each.wide_share is not None]
        ratios = [each.ratio for each in facts if each.ratio is not None]
        yield [
            f"{family} {device}",
            str(len(found)),
            _range(registers),
            str(sum(bool(each.spills) for each in facts)) if facts else "not compiled",
            str(sum(bool(each.stack_bytes) for each in facts)) if facts else "",
            f"{statistics.median(wide):.0f} %" if wide else "",
            _range([round(each, 1) for each in ratios]),
        ]


def _range(values: Sequence[float]) -> str:
    """Lowest, median and highest."""
    if not values:
        return ""
    return f"{min(values):g} {statistics.median(values):g} {max(values):g}"


def _plain(look: Look) -> dict[str, Any]:
    case = look.case
    return {
        "family": case.problem.family,
        "problem": case.problem.name,
        "in_half": case.problem.in_half,
        "device": case.device.name,
        "kind": case.kind,
        "configuration": dict(case.configuration),
        "kernel": look.kernel.entry,
        "global_size": list(look.kernel.global_size),
        "local_size": list(look.kernel.local_size),
        "facts": look.facts.plain() if look.facts else None,
        "fault": look.fault,
    }
