"""Define tuning spaces: named parameters, constraints with reasons, and the configurations that satisfy them all."""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from operator import itemgetter

Configuration = Mapping[str, int]
_Values = Callable[[Configuration], Sequence[int]]


def configuration_key(configuration: Configuration) -> str:
    """Canonical text of a configuration: JSON with sorted names and no spaces."""
    return json.dumps(dict(configuration), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Parameter:
    """One tunable choice; `meaning` is shown to users."""

    name: str
    values: tuple[int, ...]
    meaning: str

    def __str__(self) -> str:
        """Its name and legal values."""
        return f"{self.name}={'|'.join(map(str, self.values))}"


@dataclass(frozen=True)
class Constraint:
    """A rule over some parameters; `reason` completes the sentence "not allowed: ..." and is the error message."""

    names: tuple[str, ...]
    holds: Callable[..., bool]
    reason: str

    def keeps(self, configuration: Configuration) -> bool:
        return self.holds(*(configuration[name] for name in self.names))

    def why(self, configuration: Configuration) -> str:
        """Return the reason against a configuration that breaks the rule."""
        return self.reason


@dataclass(frozen=True)
class DeviceLimit(Constraint):
    """A rule that holds back what the device has no room for: memory, work-items of a work-group.

    It filters and is no part of a space's identity, because what a driver reports varies from one process to the next.
    """


@dataclass(frozen=True)
class TuningSpace:
    """All configurations of a task on a device: the product of the parameters less what a constraint forbids."""

    parameters: tuple[Parameter, ...]
    constraints: tuple[Constraint, ...]

    def violations(self, configuration: Configuration) -> list[str]:
        """Everything that is wrong with a configuration, one sentence each; empty when it is valid."""
        known = {parameter.name: parameter for parameter in self.parameters}
        wrong = [f"unknown parameter {name}" for name in sorted(set(configuration) - set(known))]
        if missing := [name for name in known if name not in configuration]:
            wrong.append(f"no value for {', '.join(missing)}")
        wrong += [
            f"{name}={configuration[name]} is not one of {parameter.values}"
            for name, parameter in known.items()
            if name in configuration and configuration[name] not in parameter.values
        ]
        if wrong:
            return wrong
        return [rule.why(configuration) for rule in self.constraints if not rule.keeps(configuration)]

    def configurations(self) -> Iterator[dict[str, int]]:
        """Every valid configuration once, the last parameter varying fastest; broken prefixes are not expanded."""
        order = [parameter.name for parameter in self.parameters]
        # a generation checks rules millions of times, and most see few values: `keeps` would take most of its time
        decided_at: list[list[tuple[Callable[..., bool], _Values]]] = [[] for _ in order]
        for rule in self.constraints:
            depth = max(order.index(name) for name in rule.names)
            holds = cache(rule.holds) if len(rule.names) <= depth else rule.holds  # else no values come twice
            decided_at[depth].append((holds, _chooser(rule.names)))
        chosen: dict[str, int] = {}

        def extend(depth: int) -> Iterator[dict[str, int]]:
            if depth == len(order):
                yield dict(chosen)
                return
            for value in self.parameters[depth].values:
                chosen[order[depth]] = value
                for holds, values_of in decided_at[depth]:
                    if not holds(*values_of(chosen)):
                        break
                else:
                    yield from extend(depth + 1)
            del chosen[order[depth]]

        return extend(0)

    def first(self) -> dict[str, int]:
        """The first valid configuration. ValueError, with the rules that nothing keeps, when there is none."""
        for configuration in self.configurations():
            return configuration
        values = {parameter.name: parameter.values for parameter in self.parameters}
        broken = [
            rule.why({name: values[name][0] for name in rule.names})
            for rule in self.constraints
            if not any(rule.holds(*chosen) for chosen in itertools.product(*(values[name] for name in rule.names)))
        ]
        why = "; ".join(broken) or "no configuration keeps all rules at once"
        raise ValueError(f"nothing can run this problem on this device: {why}")

    @cached_property
    def size(self) -> int:
        """The number of valid configurations."""
        return sum(1 for _ in self.configurations())

    @cached_property
    def sha256(self) -> str:
        """Identity of the space as declared for a problem: parameter names and values, and the names and reasons of the
        constraints that are no device limits."""
        rules = (rule for rule in self.constraints if not isinstance(rule, DeviceLimit))
        declared = [
            [[parameter.name, parameter.values] for parameter in self.parameters],
            [[rule.names, rule.reason] for rule in rules],
        ]
        return hashlib.sha256(json.dumps(declared).encode()).hexdigest()


def _chooser(names: Sequence[str]) -> _Values:
    """What gives the values of these parameters out of a configuration."""
    if len(names) == 1:  # itemgetter gives no tuple then
        return lambda configuration: (configuration[names[0]],)
    return itemgetter(*names)
