"""Ask a device how it takes memory without a copy: python -m gputune.runtime.contexts.probe REPORT.

The program opens the device of a report, which is JSON, in the C runtime and writes its answer in a line.
"""

import json
import sys

from gputune.core.errors import DeviceError, DeviceNotFound
from gputune.runtime.contexts.device import open_report, runs_in_c
from gputune.runtime.devices.discovery import MEMORY_MARK, MEMORY_PROBE, OPENCL, PROBE, DeviceReport, importers_of


def importers_on(report: DeviceReport) -> list[tuple[str, str]]:
    """Return the importers of a usable device, as importers_of does, in the runtime that runs contexts on it. Raises
    DeviceNotFound; ValueError for an unknown runtime."""
    return importers_of(report, MEMORY_PROBE if report.backend == OPENCL and runs_in_c() else PROBE)


def main(arguments: list[str]) -> int:
    try:
        importers = open_report(DeviceReport.from_dict(json.loads(arguments[0]))).importers()
    except (DeviceError, DeviceNotFound) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 3
    print(MEMORY_MARK + json.dumps(importers), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
