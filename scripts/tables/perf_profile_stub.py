"""Write the types of the setters and getters that runtime/power/profiles/accessors.py makes from its table."""

from collections.abc import Iterator

from gputune.runtime.power.profiles.accessors import OF_ALL, OF_BOTH, OF_PHASE
from gputune.runtime.power.profiles.settings import GENERAL, Count, Flag, Kind, PowerModeChoice, kind_of

PATH = "runtime/power/profiles/accessors.pyi"
HEAD = '''\
"""The types of accessors.py. scripts/docs writes this file from the table there: change that."""

from gputune.runtime.power.profiles.settings import Phase, Value
from gputune.runtime.power.records import Corner, PowerMode

_Corner = Corner | str
_When = Phase | None

OF_ALL: dict[str, str]
OF_PHASE: dict[str, str]
OF_BOTH: dict[str, tuple[str, str]]

class Accessors:
    _values: dict[str, dict[str, Value]]
    def __init__(self) -> None: ...
    def set_value(self, section: str, key: str, value: object) -> None: ...
    def value(self, section: str, key: str) -> Value | None: ...
    def set_dsp_hysteresis_time(self, time_ms: int) -> None: ...
    def get_dsp_hysteresis_time(self) -> int: ...
    def _corner(self, phase: Phase, key: str) -> Corner: ...
'''


def text() -> str:
    """Return the stub."""
    return HEAD + "".join(f"    {line}\n" for line in _methods())


def _methods() -> Iterator[str]:
    for name, key in OF_ALL.items():
        given, found = _types(kind_of(GENERAL, key))
        yield f"def set_{name}(self, value: {given}) -> None: ..."
        yield f"def get_{name}(self) -> {found}: ..."
    kinds = {name: kind_of("execute", key) for name, key in OF_PHASE.items()}
    kinds |= dict.fromkeys(OF_BOTH, kind_of("execute", OF_PHASE["bus_voltage_corner_min_start"]))
    for name, kind in kinds.items():
        given, found = _types(kind)
        yield f"def set_{name}(self, value: {given}, phase: _When = None) -> None: ..."
        yield f'def get_{name}(self, phase: Phase = "execute") -> {found}: ...'


def _types(kind: Kind) -> tuple[str, str]:
    """Return what a setter takes and what a getter returns."""
    if isinstance(kind, Flag):
        return "bool", "bool"
    if isinstance(kind, Count):
        return "int", "int" if kind.default is not None else "int | None"
    return ("PowerMode | str", "PowerMode") if isinstance(kind, PowerModeChoice) else ("_Corner", "Corner")
