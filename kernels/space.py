"""Define tuning spaces: named parameters, constraints with reasons, and the configurations that satisfy them all."""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from operator import itemgetter

Configuration = Mapping[str, int]
_Values = Callable[[Configuration], Sequence[int]]


def configuration_key(configuration: Configuration) -> str:
    """Canonical text of a configuration: JSON with sorted names and no spaces."""
    return json.dumps(dict(configuration), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Parameter:
    """One tunable choice; `meaning` is shown to users. The work-items of a work-group are the product of those that are
    `of_group`."""

    name: str
    values: tuple[int, ...]
    meaning: str
    of_group: bool = False

    def __str__(self) -> str:
        """Return its name and legal values."""
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
    asks: the features that it wants to know of. A device is asked for the features that a space asks for, and what it
    has proven of them is part of the validity of the space's task.
    """

    asks: tuple[str, ...] = field(default=(), kw_only=True)


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
        """Yield every valid configuration once, the last parameter varying fastest; broken prefixes are not
        expanded."""
        order = [parameter.name for parameter in self.parameters]
        # a generation checks rules millions of times, and most see few values: `keeps` would take most of its time
        decided_at: list[list[tuple[Callable[..., bool], _Values]]] = [[] for _ in order]
        for rule in self.constraints:
            depth = max(order.index(name) for name in rule.names)
            holds = cache(rule.holds) if len(rule.names) <= depth else rule.holds  # else no values come twice
            decided_at[depth].append((holds, _chooser(rule.names)))
        if not order:
            yield {}
            return
        chosen: dict[str, int] = {}
        waiting = [iter(self.parameters[0].values)]  # for each parameter so far the values that are left
        while waiting:
            depth = len(waiting) - 1
            for value in waiting[-1]:
                chosen[order[depth]] = value
                for holds, values_of in decided_at[depth]:
                    if not holds(*values_of(chosen)):
                        break
                else:
                    if depth + 1 < len(order):
                        waiting.append(iter(self.parameters[depth + 1].values))
                        break
                    yield dict(chosen)
            else:
                waiting.pop()

    def first(self) -> dict[str, int]:
        """Return the first valid configuration. ValueError, with the rules that nothing keeps, when there is none."""
        for configuration in self.configurations():
            return configuration
        raise ValueError(f"nothing can run this problem on this device: {self._obstacle()}")

    def _obstacle(self) -> str:
        """Return the rules that nothing keeps."""
        values = {parameter.name: parameter.values for parameter in self.parameters}
        broken = [
            rule.why({name: values[name][0] for name in rule.names})
            for rule in self.constraints
            if not any(rule.holds(*chosen) for chosen in itertools.product(*(values[name] for name in rule.names)))
        ]
        return "; ".join(broken) or "no configuration keeps all rules at once"

    @cached_property
    def size(self) -> int:
        """The number of valid configurations."""
        return sum(1 for _ in self.configurations())

    @property
    def asks(self) -> frozenset[str]:
        """The features that any configuration needs, whether the device has them or not."""
        return frozenset(name for rule in self.constraints if isinstance(rule, DeviceLimit) for name in rule.asks)

    @property
    def group(self) -> tuple[str, ...]:
        """The parameters whose product is the size of a work-group; no part of the space's identity."""
        return tuple(parameter.name for parameter in self.parameters if parameter.of_group)

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


@dataclass(frozen=True)
class ChoiceSpace(TuningSpace):
    """A space whose first parameter chooses among several, by their numbers.

    A parameter that the chosen space does not have has its `idle` value, so that nothing comes twice. Enumerating goes
    through the spaces one after the other, so no rule of another space is asked.
    """

    spaces: Mapping[int, TuningSpace]
    idle: Mapping[str, int]

    def configurations(self) -> Iterator[dict[str, int]]:
        for number, space in self.spaces.items():
            idle = {self.parameters[0].name: number, **self.idle}
            for configuration in space.configurations():
                yield idle | configuration

    def _obstacle(self) -> str:
        """Return the rules that nothing keeps in each of the spaces, for all rules are kept by the other spaces."""
        of_each = {number: space._obstacle() for number, space in self.spaces.items()}
        if len(different := {*of_each.values()}) == 1:
            return different.pop()
        return "; ".join(f"with {self.parameters[0].name} {number}: {why}" for number, why in of_each.items())

    @cached_property
    def size(self) -> int:
        """The number of valid configurations."""
        return sum(space.size for space in self.spaces.values())

    def filled(self, number: int, configuration: Configuration) -> dict[str, int]:
        """Return a configuration of the space of this number with the parameters of the others."""
        own = {name: configuration.get(name, idle) for name, idle in self.idle.items()}
        return {self.parameters[0].name: number} | own


def choice(name: str, meaning: str, spaces: Mapping[int, TuningSpace]) -> ChoiceSpace:
    """Return the space in which a parameter chooses among spaces by their numbers. Parameters of several spaces are one
    parameter; its meaning is that of the first space that has it, and those of the others where they differ."""
    meanings: dict[str, str] = {}
    values: dict[str, tuple[int, ...]] = {}
    group = {name for space in spaces.values() for name in space.group}
    for number, space in spaces.items():
        for each in space.parameters:
            said = meanings.setdefault(each.name, each.meaning)
            if each.meaning not in said:
                meanings[each.name] = f"{said}; with {name} {number}: {each.meaning}"
            known = values.setdefault(each.name, each.values)
            values[each.name] = (*known, *(value for value in each.values if value not in known))
    idle = {each: legal[0] for each, legal in values.items()}
    rules: list[Constraint] = []
    for number, space in spaces.items():
        own = {each.name: each.values for each in space.parameters}
        rules += (where(name, number, rule) for rule in space.constraints)
        rules += (
            where(name, number, _limited(each, own.get(each, (idle[each],))))
            for each, legal in values.items()
            if own.get(each) != legal
        )
    parameters = (Parameter(each, legal, meanings[each], each in group) for each, legal in values.items())
    return ChoiceSpace((Parameter(name, tuple(sorted(spaces)), meaning), *parameters), tuple(rules), spaces, idle)


def where(name: str, value: int, rule: Constraint) -> Constraint:
    """Return a rule for configurations in which a parameter has this value."""
    return replace(
        rule,
        names=(name, *rule.names),
        holds=lambda chosen, *values: chosen != value or rule.holds(*values),
        reason=f"with {name} {value}: {rule.reason}",
    )


def _limited(name: str, values: tuple[int, ...]) -> Constraint:
    """Return the rule that a parameter has one of these values."""
    which = f"{name} is {' or '.join(map(str, values))}"
    return Constraint((name,), lambda value: value in values, which)


def _chooser(names: Sequence[str]) -> _Values:
    """Return what gives the values of these parameters out of a configuration."""
    if len(names) == 1:  # itemgetter gives no tuple then
        return lambda configuration: (configuration[names[0]],)
    return itemgetter(*names)
