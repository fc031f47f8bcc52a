"""Turn errors of contexts and devices into errors that end a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gputune.client.errors import ConfigError, DeviceOrContextError, TargetError
from gputune.core.errors import ContextError, DeviceError, DeviceNotFound, UnknownGraph
from gputune.runtime.onnxruntime import PluginError


@contextmanager
def device_errors(context_binary: Path | None = None) -> Iterator[None]:
    """Turn the runtime's errors into one line with the context's path, and the error's name where it has one."""
    try:
        yield
    except OSError as error:
        why = f"{error.filename or context_binary} cannot be read: {error.strerror}"
        raise DeviceOrContextError(why if error.strerror else str(error)) from None  # C's errors are whole lines
    except UnknownGraph as error:
        raise ConfigError(str(error)) from None
    except ContextError as error:
        raise DeviceOrContextError(f"{error} [{error.name}]") from None
    except DeviceNotFound as error:
        raise TargetError("no_device", str(error)) from None
    except (DeviceError, PluginError, ValueError) as error:
        raise DeviceOrContextError(str(error)) from None
