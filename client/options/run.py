"""Define the options of net-run, and the keys of its config file: what runs, how often, and what is kept of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gputune.client.options import config, shared
from gputune.client.options.config_file import Keys
from gputune.client.options.files import (
    CONTEXT_BINARY,
    CONTEXTS,
    INPUT,
    INPUT_LISTS,
    MODEL,
    OUTPUT,
    OUTPUT_FOLDER,
)
from gputune.client.options.kinds import COUNT, FLAG, NAMES, SECONDS, at_least, choice, file, text
from gputune.client.options.option import (
    CHECKS,
    DEVICE,
    FILES,
    INFERENCES,
    MAIN,
    PROFILE,
    Kind,
    option,
    options_of,
    same,
)
from gputune.client.options.originals import BACKEND, NATIVE_FILES
from gputune.runtime.profiling.levels import LEVELS, SYNONYMS

OPTRACE = "optrace"
_key = functools.partial(option, key=True, only_key=True, sections=("context",))


@dataclass(frozen=True)
class RunOptions:
    """Hold what is asked of net-run. num_inferences, duration: how many, or how many seconds; at most one of the two.
    keep_num_outputs: of how many inferences results are written at most, None for all lines of the input list. timeout:
    what an inference may take in microseconds. num_max_events: how many inferences and launches a profile's log may
    have, 0 for any number."""

    context_binary: list[Path] = option(
        list,
        Kind(click={"type": CONTEXTS, "metavar": "FILE[,...]", "required": True}),
        "Context binary, or a model in parts, which onnxruntime runs. Several contexts, separated by commas, run one "
        "after the other on one device. In a list, put a path with a comma in double quotes.",
        declared=CONTEXT_BINARY,
        group=MAIN,
    )
    input_list: list[Path | None] | None = option(
        None,
        Kind(click={"type": INPUT_LISTS, "metavar": "FILE[,...]"}),
        "File with a line for each inference: NAME:=FILE NAME2:=FILE. Each FILE has raw values or is a .npy file; put "
        "names and paths with blanks in double quotes. Give each context its own list; for a graph without inputs, "
        "omit it, or leave its place between the commas empty.",
        group=MAIN,
    )
    share_spill_fill: bool | None = option(
        None,
        Kind(click={"default": None}),
        "Let several contexts take turns with one set of arenas, and share equal weights and programs.  [default: "
        "share if all were generated with enable_spill_fill_buffer]",
        declared=("--share_spill_fill/--no_share_spill_fill",),
        group=INFERENCES,
    )
    output_dir: Path = option(
        Path("output"),
        file(OUTPUT_FOLDER),
        "Folder for the outputs: Result_N/NAME.raw, where N is the line of the input list, from 0; with several "
        "contexts CONTEXT/Result_N/NAME.raw, by the names of their files.",
        shown=Path("output"),
        group=MAIN,
    )
    num_inferences: int | None = option(
        None,
        at_least(1),
        "Number of inferences of each context. After the last line of the input list, it starts over and writes "
        "no more outputs.  [default: one per line]",
        group=MAIN,
    )
    duration: float | None = option(
        None,
        SECONDS,
        "Instead of a number, the time in which inferences of each context begin, such as 30 (seconds), 90s, 10m "
        "or 1h30m.",
        group=INFERENCES,
    )
    warmup: int = option(
        0,
        at_least(0, metavar="N"),
        "Number of inferences to run first; they are neither counted nor written.",
        shown=0,
        group=INFERENCES,
    )
    wait_for_quiet: int | None = same(shared.WAIT_FOR_QUIET, None, group=INFERENCES)
    keep_num_outputs: int | None = option(
        None,
        at_least(0, metavar="N"),
        "Write the outputs of the first N inferences only; 0 writes none.  [default: one per line]",
        group=INFERENCES,
    )
    export_times: Path | None = option(
        None,
        file(OUTPUT, "F"),
        "Write the beginning and the duration of every inference, in ns, to this .csv or .json file.",
        group=FILES,
    )
    npy: bool = option(False, FLAG, "Also write NAME.npy next to NAME.raw.", group=FILES)
    shared_buffer: bool = option(
        False,
        FLAG,
        "Pass inputs and outputs as memory handles, which the device uses without a copy. Counters in --summary_json "
        "prove it, or say why something was copied.",
        group=INFERENCES,
    )
    device: str | None = same(
        shared.DEVICE_OPTION,
        None,
        help="Number, or part of the name, of a device in `gputune devices`, or agent:HOST:PORT.  [default: the "
        "context's own device]",
    )
    graph: str | None = option(
        None,
        text("NAME[,...]"),
        "Graph of the context to run. With several contexts: one name for all, or one for each.  [default: the first "
        "graph; for a step of a state, the graphs that fit its tokens and rows]",
        group=INFERENCES,
    )
    cache_compatibility_mode: Literal["permissive", "strict"] = option(
        "permissive",
        choice("permissive", "strict"),
        "On another device or driver: permissive builds the kernels from source with a warning, strict refuses the "
        "context.",
        key=True,
        sections=("context",),
        shown="permissive",
        group=DEVICE,
    )
    profiling_level: str | None = option(
        None,
        choice(*LEVELS, *SYNONYMS),
        "After the run, record as many inferences on the first line's inputs in "
        "profilelogs/gputune-profiling-data.log, below --output_dir if it is given. basic: whole inferences and their "
        "parts, by the host's clock. detailed: also each launch. qhas (or backend, linting): also queue and submit "
        "times, counters, and the state of the device. `gputune profile-viewer` shows the log.",
        group=PROFILE,
    )
    profiling_option: str | None = option(
        None, choice(OPTRACE), "optrace: the original tools' name for level qhas.", group=PROFILE
    )
    profile: Path | None = option(
        None,
        file(OUTPUT, "F"),
        "Write the times of operations to this file, as JSON; with several contexts, by their names. Implies "
        "--profiling_level detailed.",
        group=PROFILE,
    )
    keep_warm: bool = option(
        False,
        FLAG,
        "Keep this machine's device awake between inferences: by empty launches, or on a CPU by a thread that "
        "occupies a processor.",
        group=DEVICE,
    )
    verify: Path | None = option(
        None,
        file(MODEL, "MODEL"),
        "After the run, compare the outputs of each line with those of this ONNX model in onnxruntime. The command "
        "fails if it is not the context's model, or if outputs differ.",
        group=CHECKS,
    )
    config_file: Path | None = option(
        None,
        file(INPUT, "F"),
        "JSON file in the original tools' format: context_configs with enable_graphs and "
        "cache_compatibility_mode, profile_configs with num_max_events.",
        group=FILES,
    )
    validate_binary: bool = option(
        False,
        FLAG,
        "Check the header, every checksum, and how the context fits the device. Run nothing.",
        group=CHECKS,
    )
    timeout: int | None = option(
        None,
        at_least(1, metavar="US"),
        "End with an error after an inference that took more microseconds than this. OpenCL cannot stop an "
        "inference earlier.",
        group=CHECKS,
    )
    log_level: str = same(shared.LOG_LEVEL, "info")
    summary_json: Path | None = same(shared.SUMMARY_JSON, None)
    context_priority: str = _key("normal", Kind(json=config.normal_priority))
    enable_graphs: tuple[str, ...] = _key((), NAMES)
    num_max_events: int = _key(0, COUNT, sections=("profile",))


RUN = tuple(one for one in options_of(RunOptions) if not one.only_key)
NAMED = {one.name: one for one in RUN}
ALL = (*RUN, *shared.PERF_PROFILE, *shared.connection(otherwise="this machine's own device"), BACKEND, *NATIVE_FILES)
"""Every option of net-run."""
_GENERATION = "it is a key of context-binary-generator, and the context is made already; leave it out here"
KEYS = Keys(
    options_of(RunOptions),
    refused={**config.KEYS.refused, **dict.fromkeys((*config.KEYS.of("file"), "graph_name"), _GENERATION)},
)
