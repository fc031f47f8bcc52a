"""Say how a device takes memory without a copy: python -m gputune.runtime.contexts.probe REPORT, which is JSON."""

import json
import sys

from gputune.core.errors import DeviceError, DeviceNotFound
from gputune.runtime.backends.null import HOST_POINTER
from gputune.runtime.contexts.device import open_report
from gputune.runtime.devices.discovery import MEMORY_MARK, OPENCL, DeviceReport


def main(report: str) -> int:
    """Print a line for discovery, and return an exit code."""
    asked = DeviceReport.from_dict(json.loads(report))
    if not asked.usable:
        print(f"{asked.title} is not usable: {asked.reason}", file=sys.stderr)
        return 3
    try:
        importers = open_report(asked).importers() if asked.backend == OPENCL else [(HOST_POINTER, ""), ("copy", "")]
    except (DeviceError, DeviceNotFound) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 3
    print(MEMORY_MARK + json.dumps(importers), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
