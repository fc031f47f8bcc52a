"""Write the packages of a job: for each model, one file with its contexts for all tiers."""

from collections.abc import Sequence
from pathlib import Path

from gputune.client.device_errors import device_errors
from gputune.client.run.packages import combine
from gputune.core.errors import ContextError
from gputune.runtime.context.package import is_package, open_package


def pack(output: Path, contexts: Sequence[Path]) -> str:
    """Write a package of contexts, in the place of an earlier one, and return what there is to say of it. Raises
    DeviceOrContextError, ConfigError, OutputError."""
    before = _names(output)
    with device_errors(output):
        packing = combine(output, contexts)
    names = _names(output)
    said = f"{packing}; contexts {', '.join(names)}"
    gone = [name for name in before if name not in names]
    return f"{said}; no longer in the package: {', '.join(gone)}" if gone else said


def _names(path: Path) -> list[str]:
    """Return the names of the contexts in a package; none where there is no package that can be read."""
    try:
        if not is_package(path):
            return []
        with open_package(path) as package:
            return [entry.name for entry in package.contexts]
    except (OSError, ContextError):
        return []
