"""Evaluate given configurations of a kernel with Kernel Tuner, verification on. Runs under an interpreter that has
kernel_tuner and pyopencl, and needs nothing of gputune: `peer.py` starts it as

    PYTHON with_kernel_tuner.py FOLDER

FOLDER holds job.json and the arrays of arguments and answer as .npy files. Prints one JSON line: the seconds of
tune_kernel, which include its uploads but neither imports nor opening the device, and the milliseconds that it measured
by configuration, null for one that failed.
"""

import contextlib
import io
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import kernel_tuner  # noqa: E402
import numpy as np  # noqa: E402
import pyopencl as cl  # noqa: E402


def place_of(platform: str, device: str) -> tuple[int, int]:
    """Where the loader lists a device. Ends the program where it does not."""
    for number, one in enumerate(cl.get_platforms()):
        for place, other in enumerate(one.get_devices()):
            if (one.name.strip(), other.name.strip()) == (platform, device):
                return number, place
    sys.exit(f"kernel_tuner's pyopencl does not see {device} ({platform})")


def main() -> None:
    folder = Path(sys.argv[1])
    job: dict[str, Any] = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    platform, device = place_of(job["platform"], job["device"])
    arguments = [np.load(folder / f"{name}.npy") for name in job["arguments"]]
    answer = [np.load(folder / "answer.npy") if name == "output" else None for name in job["arguments"]]
    groups = {json.dumps(one["values"]): tuple(one["groups"]) for one in job["configurations"]}
    names = list(job["configurations"][0]["values"])

    def values_of(parameters: Any) -> str:
        return json.dumps({name: int(parameters[name]) for name in names})

    def legal(*values: int, **named: int) -> bool:
        """Kernel Tuner passes the values by place when it builds the space, and by name when it checks one."""
        return values_of(dict(zip(names, values, strict=True)) if values else named) in groups

    began = time.monotonic()
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results, _ = kernel_tuner.tune_kernel(
                job["entry"],
                job["source"],
                lambda parameters: groups[values_of(parameters)],
                arguments,
                {name: sorted({one["values"][name] for one in job["configurations"]}) for name in names},
                grid_div_x=[],
                grid_div_y=[],
                restrictions=[legal],
                answer=answer,
                atol=job["tolerance"],
                block_size_names=job["block_size_names"],
                lang="OpenCL",
                platform=platform,
                device=device,
                compiler_options=job["options"],
            )
    except Exception as error:
        sys.exit(f"kernel_tuner: {type(error).__name__}: {error}\n{said.getvalue()[-2000:]}")
    seconds = time.monotonic() - began
    times = {values_of(one): one["time"] if isinstance(one["time"], float) else None for one in results}
    print(json.dumps({"seconds": seconds, "milliseconds": times}))


if __name__ == "__main__":
    main()
