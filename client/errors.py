"""Errors that a user can act on: one line, and the exit code of the command that meets it."""


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


class ModelError(GputuneError):
    """The model is missing, broken, or needs what is not supported."""

    exit_code = 3


class TuningError(GputuneError):
    """No variant of a task works on the target."""

    exit_code = 5


class MemoryPlanError(GputuneError):
    """The model's tensors do not fit into what the device can allocate."""

    exit_code = 5


class OutputError(GputuneError):
    """A result cannot be written where it was asked for."""

    exit_code = 6


class DeviceOrContextError(GputuneError):
    """No device works, or a context binary cannot be loaded or run on it."""

    exit_code = 8
