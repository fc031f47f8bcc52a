"""Run gputune's commands so that launches of a context share one program, as far as their texts can be merged."""

from __future__ import annotations

import dataclasses

from gputune.client.cli.main import main
from gputune.client.context import builder
from gputune.core.identity import DeviceIdentity
from gputune.core.quirks import Quirks, quirks_of

ANY_NUMBER = 1 << 20


def charging(device: DeviceIdentity) -> Quirks:
    """Return what is different about a driver, as if it charged for each program."""
    return dataclasses.replace(quirks_of(device), charges_per_program=True)


if __name__ == "__main__":
    vars(builder).update(quirks_of=charging, KERNELS_TOGETHER=ANY_NUMBER, PROGRAMS_PER_UNIT=1 / ANY_NUMBER)
    main()
