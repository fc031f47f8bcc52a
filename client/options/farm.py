"""Define the options of `gputune farm`."""

from __future__ import annotations

import click

from gputune.client.options import shared
from gputune.client.options.files import OUTPUT, FileText, SearchedFolder
from gputune.client.options.generator import CONFIG_FILE, EVERY_OUTPUT, MEMORY, OUTPUTS
from gputune.client.options.kinds import FLAG, at_least, file, text, whole
from gputune.client.options.option import DEVICE, FILES, MAIN, Kind, Option, options_of
from gputune.client.options.tuning import TuningOptions

SCHEDULER_PORT, DASHBOARD_PORT = 8786, 8787
_PORT = whole(0, 65535, "ports", "PORT")

FARM_DIR = Option(
    "farm_dir",
    file(SearchedFolder(), "DIR"),
    "Folder with the certificates and the job journal, instead of your own folder.",
)
SCHEDULER = Option(
    "scheduler",
    text("HOST:PORT"),
    "Address of the farm's scheduler. A scheduler on another machine needs certificates (`gputune farm init`); "
    "tls://HOST:PORT uses them on this machine as well.",
    group=MAIN,
    shown=f"127.0.0.1:{SCHEDULER_PORT}",
)
INIT = (
    Option(
        "member",
        text("NAME", multiple=True),
        "Create a certificate for another machine, signed by the existing authority. Repeat it for several machines.",
        parameter="members",
    ),
    FARM_DIR,
)
SERVED = (
    Option(
        "host",
        text("HOST"),
        "Address to listen on. An address that other machines can reach needs certificates.",
        shown="127.0.0.1",
    ),
    Option("port", _PORT, "TCP port; 0 picks a free one.", shown=SCHEDULER_PORT),
    Option("tls", FLAG, "Use certificates on this machine's own addresses as well."),
    Option(
        "dashboard_port",
        _PORT,
        "Port of Dask's own dashboard, on 127.0.0.1 only, if bokeh is installed; 0 for no dashboard.",
        shown=DASHBOARD_PORT,
    ),
    FARM_DIR,
)
"""The options of `gputune farm scheduler`."""
WORKER = (
    SCHEDULER,
    Option("name", text("NAME"), "Name of the device in the farm.  [default: this machine's name and the device]"),
    shared.DEVICE_OPTION.having(help="Device of this machine, as in `gputune target-server`."),
    *shared.connection(otherwise="a device of this machine"),
    FARM_DIR,
    shared.LOG_LEVEL,
)
STATUS = (
    SCHEDULER,
    shared.JSON,
    Option("html", file(OUTPUT, "FILE"), "Write a page about the farm and its jobs.", group=FILES),
    Option(
        "every",
        Kind(click={"type": click.FloatRange(min=0.5), "metavar": "SECONDS"}),
        "Write the page again after each interval, in seconds, until interrupted. A browser that shows the page "
        "reloads it.",
        group=FILES,
    ),
    FARM_DIR,
)
WISHES = tuple(one for one in options_of(TuningOptions) if one.name != "report")
"""The options about tuning: a report is about one context."""
TUNE = (
    Option(
        "models",
        text("DIR|FILE", type=FileText(), multiple=True),
        "ONNX models, or folders of models. Repeat it, or separate them with commas; put a path with a comma in "
        "double quotes.",
        group=MAIN,
    ),
    Option(
        "tiers",
        text("GLOB[,...]"),
        "Device tiers to tune for, by the names in `gputune farm status`.",
        group=MAIN,
        shown="*",
    ),
    Option("count", at_least(1), "Most devices of each tier to use.  [default: all]", group=DEVICE),
    shared.TUNING_EFFORT,
    shared.OUTPUT_DIR.having(help="Folder for the packages, MODEL.gtpkg, and their context binaries, MODEL.TIER.bin."),
    shared.DIMENSIONS_OF_MODELS,
    shared.VALUES_OF_MODELS,
    EVERY_OUTPUT,
    OUTPUTS.having(
        help="Also return these tensors, of all models or of a model by its name; as in context-binary-generator.",
        click={"metavar": "T0,T1|MODEL:T0;MODEL:T1"},
    ),
    MEMORY.having(
        help="raw or memhandle, NAME=memhandle,..., or MODEL:NAME=memhandle; as in context-binary-generator.",
    ),
    shared.OP_PACKAGES,
    CONFIG_FILE.having(
        kind=text("FILE|MODEL:FILE", type=FileText(), multiple=True),
        help="Config file as in context-binary-generator: FILE for all models, or MODEL:FILE for one model. Repeat it "
        "for each model.",
    ),
    *WISHES,
    shared.PERFORMANCE_CACHE_DIR,
    *shared.PERF_PROFILE,
    SCHEDULER.having(help="Use the devices of this farm.", shown=None),
    shared.DEVICE_OPTION.having(
        help="Without --scheduler: use this device of this machine. Repeat it for several devices.",
        group=MAIN,
        parameter="devices",
        click={"multiple": True},
    ),
    Option("resume", text("JOB"), "Continue a job that has ended or was lost.", group=MAIN),
    FARM_DIR,
    shared.LOG_LEVEL,
)
