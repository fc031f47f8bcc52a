"""Read the viewer's config file: what to write in addition to the times."""

from dataclasses import dataclass, fields
from pathlib import Path

from gputune.client.strict_json import a_flag, an_object, read_keys, read_object


@dataclass(frozen=True)
class Features:
    """What is on and off, by the names that the file has for it.

    enable_input_output_flow_events: arrows from an operation to those that read its output.
    enable_sequencer_flow_events: arrows from each launch to the next. htp_json: a file with the topology and each
    operation. runtrace: when the device executes and when it has gaps, preemptions, clocks and temperatures.
    memory_info: bytes in use and bytes/s. traceback: the ONNX nodes and the model of a launch. qhas_json: a summary;
    qhas_schema: its JSON schema."""

    enable_input_output_flow_events: bool = False
    enable_sequencer_flow_events: bool = False
    htp_json: bool = True
    runtrace: bool = True
    memory_info: bool = True
    traceback: bool = True
    qhas_schema: bool = False
    qhas_json: bool = False


NAMES = tuple(each.name for each in fields(Features))
_EXAMPLE = '{"runtrace": true}'


def read_features(path: Path) -> Features:
    """Return what a config file says; what it leaves out is as usual.

    The file is {"features": {NAME: true or false}}. Raises ConfigError for anything else in it."""
    content = read_object(path, f'{{"features": {_EXAMPLE}}}')
    found: Features = read_keys(content, {"features": _features}, f"config file {path}").get("features", Features())
    return found


def _features(value: object, where: str) -> Features:
    return Features(**read_keys(an_object(value, where, _EXAMPLE), dict.fromkeys(NAMES, a_flag), where))
