"""What goes wrong with contexts and devices, as errors of the command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gputune.client.errors import ConfigError, DeviceOrContextError
from gputune.core.errors import ContextError, DeviceError, DeviceNotFound, UnknownGraph


@contextmanager
def device_errors(context_binary: Path | None = None) -> Iterator[None]:
    """Turns the runtime's errors into one line with the context's path and the error's name."""
    try:
        yield
    except OSError as error:
        raise DeviceOrContextError(f"{error.filename or context_binary} cannot be read: {error.strerror}") from None
    except UnknownGraph as error:
        raise ConfigError(str(error)) from None
    except (ContextError, DeviceError, DeviceNotFound, ValueError) as error:
        raise DeviceOrContextError(f"{error} ({type(error).__name__})") from None
