"""Define the errors that a user can act on: each has one line of text and the exit code of the command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

INPUT_DIMENSIONS, INPUT_VALUE = "--input_dimensions", "--input_value"
STATE, STATE_CAPACITY = "--state", "--state_capacity"
"""The options that errors about inputs and states name. Commands know them before they load anything that reads
models."""


class GputuneError(Exception):
    """What went wrong, where, and what to do about it, in one line.

    `exit_code` is what a command returns when the error ends it; each subclass has its own, so that scripts
    can tell a bad model from an unreachable target.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    @property
    def message(self) -> str:
        return str(self)


class ConfigError(GputuneError):
    """An option, a config file or a combination of them is not allowed."""

    exit_code = 2


class Overwrites(ConfigError):
    """An output would replace a file that the same command reads, or another output of it."""


class ModelError(GputuneError):
    """The model is missing, broken, or needs what is not supported."""

    exit_code = 3


MODEL_INPUT = "Input"
"""Stands for the operator where an input of a model is refused."""


@dataclass(frozen=True)
class Refusal:
    """A node of a model that cannot run, or an input that cannot be taken, and why not.

    instead: what to use in its place, if the refusal knows better than the table of operators.
    """

    op: str
    node: str
    why: str
    instead: str = ""

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"input {self.node!r}" if self.op == MODEL_INPUT else f"{self.op} node {self.node!r}"


class OtherModel(ModelError):
    """A context was made from a model with other inputs or outputs."""


class UnsupportedNodes(ModelError):
    """Nodes of a model that cannot run, one or several of them.

    `refusals` are what the message says of each; `looked_at` is how many nodes were looked at, these included.
    """

    MOST_REASONS = 8
    MOST_NODES = 3
    """So many reasons are told, and of each so many nodes."""

    def __init__(self, refusals: Sequence[Refusal], model: str = "", looked_at: int = 1) -> None:
        """model: how messages call it."""
        super().__init__((f"model {model}: " if model else "") + self._told(refusals))
        self.refusals = tuple(refusals)
        self.looked_at = looked_at

    def _told(self, refusals: Sequence[Refusal]) -> str:
        """Return each reason with the nodes that it holds for."""
        labels: dict[str, list[str]] = {}
        for refusal in refusals:
            labels.setdefault(refusal.why, []).append(refusal.label)
        told = [
            f"{_listed(nodes, self.MOST_NODES)} {'is' if len(nodes) == 1 else 'are'} not supported: {why}"
            for why, nodes in labels.items()
        ]
        return "; ".join([*told[: self.MOST_REASONS], *_more(len(told) - self.MOST_REASONS, "reasons")])


def _listed(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + "".join(f" {more}" for more in _more(len(names) - most, ""))


def _more(count: int, what: str) -> list[str]:
    return [f"and {count} more {what}".strip()] if count > 0 else []


class TargetError(GputuneError):
    """What went wrong with a target, in one line that ends with its name.

    `name` is a name of gputune.server.protocol.errors.ERROR_NAMES, or one of: unreachable, not_a_target_server,
    tls_failed, connection_lost, lost_again, device_changed, bad_address, contradiction, server_not_started, no_device,
    no_agent, no_agent_device; those of client/target/adb/target.py begin with adb_. `reason` is the line without the
    name, `details` are the server's numbers.
    """

    exit_code = 4

    def __init__(self, name: str, reason: str, details: Mapping[str, object] | None = None) -> None:
        super().__init__(f"{reason} [{name}]")
        self.exit_code = _CODES_OF_NAMES.get(name, TargetError.exit_code)
        self.name = name
        self.reason = reason
        self.details = dict(details or {})


class TuningError(GputuneError):
    """No variant of a task works on the target."""

    exit_code = 5


class MemoryPlanError(GputuneError):
    """The model's tensors do not fit into what the device can allocate."""

    exit_code = 5


class OutputError(GputuneError):
    """A result cannot be written where it was asked for."""

    exit_code = 6


class VerificationError(GputuneError):
    """A context computes something else than onnxruntime does."""

    exit_code = 10


class NothingCompared(VerificationError):
    """All values of an output are NaN or infinite on both sides, so that comparing them shows nothing."""


class WrongResults(GputuneError):
    """A context computes something else than it did on the same inputs before."""

    exit_code = 10


class CacheMiss(GputuneError):
    """Something has to be measured that a frozen performance cache does not know, or there is no such cache."""

    exit_code = 11


class GainTooSmall(GputuneError):
    """Report that tuning gained less than was asked for."""

    exit_code = 13


class DeviceOrContextError(GputuneError):
    """No device works, or a context binary cannot be loaded or run on it."""

    exit_code = 8


_CODES_OF_NAMES = {
    "bad_address": ConfigError.exit_code,
    "contradiction": ConfigError.exit_code,
    "no_device": DeviceOrContextError.exit_code,
    "no_agent_device": DeviceOrContextError.exit_code,
    "no_contexts": DeviceOrContextError.exit_code,
}
"""The codes of errors about targets that are no target's fault."""
