"""Find the configurations so close to a task's winner that the rest of a model may decide between them."""

from gputune.client.tuning.search.task_search import TaskSearch
from gputune.kernels.space import Configuration, configuration_key

NEAR = 0.15
"""Alone, a configuration is slower than the winner by this share at most."""


def runners_up(search: TaskSearch, winner: Configuration) -> list[Configuration]:
    """Return the configurations near the winner and not slower than the default, best first, without those that have
    the machine code of a better one."""
    least, default = search.cost(winner), search.cost(search.default)
    if least is None:
        return []
    most = least * (1 + NEAR) if default is None else min(least * (1 + NEAR), default)
    near = [
        (cost, key, record.configuration)
        for key, record in search.known.items()
        if (cost := search.cost(record.configuration)) is not None and cost <= most
    ]
    taken = {_code(search, winner)}
    found = []
    for _, _, configuration in sorted(near, key=lambda one: one[:2]):
        code = _code(search, configuration)
        if code not in taken:
            taken.add(code)
            found.append(configuration)
    return found


def _code(search: TaskSearch, configuration: Configuration) -> object:
    """Return what two configurations with the same machine code have in common."""
    return search.record(configuration).measured.get("same_as", configuration_key(configuration))
