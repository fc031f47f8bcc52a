"""Test every option and key of the original tools: it works as documented, or is refused with an alternative."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from gputune.client.cli.main import COMMANDS
from gputune.client.options import run
from gputune.client.options.config import KEYS as GENERATOR_KEYS
from gputune.client.options.config_file import SECTIONS
from gputune.client.options.originals import REFUSED as REFUSALS
from gputune.runtime.loading.model import Model
from gputune.runtime.profiling.log import read_log
from tests.client.commands import Gputune, Ran, read_json
from tests.client.contexts import small_context

ROOT = Path(__file__).parents[3]
REFUSED = "refused"
LISTED: dict[str, dict[str, Any]] = read_json(Path(__file__).with_name("original_options.json"))
"""options: those of the original tools, each with the test file that shows what it does, or REFUSED; keys: those of
config files."""
OPTIONS = [(command, name, by) for command, options in LISTED["options"].items() for name, by in options.items()]
TAKEN = [option for option in OPTIONS if option[2] != REFUSED]
NOT_TAKEN = [(command, name) for command, name, by in OPTIONS if by == REFUSED]
KEYS: dict[str, str] = LISTED["keys"]


def known_to(command: str) -> set[str]:
    """The options of a command."""
    found: click.Command = importlib.import_module(f"gputune.client.cli.{COMMANDS[command][0]}").command
    return {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize(("command", "name", "shown_by"), TAKEN)
def test_an_option_that_is_taken_is_shown_somewhere(command: str, name: str, shown_by: str) -> None:
    assert name in known_to(command) | {"--help", "--version"}
    assert name in (ROOT / shown_by).read_text(encoding="utf-8")


@pytest.mark.parametrize(("command", "name"), NOT_TAKEN)
def test_an_option_that_is_refused_is_named_with_what_to_use(gputune: Gputune, command: str, name: str) -> None:
    assert name not in known_to(command)
    ran = gputune(command, name, "value")
    assert (ran.code, ran.last_line) == (
        2,
        f"error: {name} of the original tool is refused: {REFUSALS[command][name]}",
    )
    named = [word for word in ran.last_line.replace(",", " ").split() if word.startswith("--")][1:]
    everything = set().union(*map(known_to, ("context-binary-generator", "net-run", "throughput-net-run")))
    assert set(named) <= everything | known_to("profile-viewer"), "what is to be used instead is there"


def test_the_list_has_every_option_that_is_refused() -> None:
    assert set(NOT_TAKEN) == {(command, name) for command, options in REFUSALS.items() for name in options}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_taken_or_refused(key: str) -> None:
    both = (GENERATOR_KEYS, run.KEYS)
    taken = {*SECTIONS, "config_file_path", "shared_library_path"}.union(
        *({one.key for one in keys.options} for keys in both)
    )
    assert (key in taken) == (KEYS[key] != REFUSED)
    if KEYS[key] == REFUSED:
        assert all(key in keys.refused for keys in both)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    return tmp_path / "context.bin"


@pytest.fixture
def net_run(net_run: Callable[..., Ran], context: Path, tmp_path: Path) -> Callable[..., Ran]:
    """Run a context of two graphs, with these sections of a config file."""
    small_context(context, names=("main", "other"))

    def run(*arguments: object, **sections: object) -> Ran:
        config = tmp_path / "config.json"
        config.write_text(json.dumps(sections), encoding="utf-8")
        return net_run(*arguments, *(("--config_file", config) if sections else ()))

    return run


def test_native_files_are_what_there_is(net_run: Any, tmp_path: Path) -> None:
    """The dtype of a raw file is the tensor's: eight values of four bytes in, as many out."""
    ran = net_run("--use_native_input_files", "--use_native_output_files", "--log_level", "error")
    assert ran.code == 0, ran.err
    assert ran.err == "", "--log_level error says nothing of a run that works"
    assert (tmp_path / "results" / "Result_0" / "y.raw").stat().st_size == 32


def test_an_inference_that_takes_too_long_ends_the_run(net_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert net_run("--timeout", 10**12).code == 0
    monkeypatch.setattr("gputune.runtime.Executor.run_timed", lambda self, inputs: ({}, 5_000_000))
    ran = net_run("--timeout", 4999)
    assert ran.code == 8
    assert ran.last_line == "error: timed out: inference 0 took 5000 us, and --timeout allows 4999"


def test_a_binary_is_validated_without_running_it(net_run: Any, context: Path, tmp_path: Path) -> None:
    ran = net_run("--validate_binary")
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{context}: 2 graphs, ") and "are whole; optimal on " in ran.out
    assert not (tmp_path / "results").exists()
    whole = context.read_bytes()
    context.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    ran = net_run("--validate_binary")
    assert ran.code == 8 and "[checksum_mismatch]" in ran.last_line
    assert "omit --target and --adb" in net_run("--validate_binary", "--target", "host:1").last_line


def test_enabled_graphs_decide_what_runs(net_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def enabled(*names: str) -> dict[str, Any]:
        return {"context_configs": {"enable_graphs": list(names)}}

    ran = net_run("--graph", "main", **enabled("other"))
    assert ran.code == 2 and "'main' is not among enable_graphs" in ran.last_line
    ran = net_run(**enabled("othr"))
    assert ran.code == 2 and "enable_graphs: there is no graph 'othr'; did you mean 'other'?" in ran.last_line
    seen: list[str | None] = []
    load = Model.load

    def loading(model: Model, device: str | None, mode: Any, graph: str | None, *rest: object) -> Any:
        seen.append(graph)
        return load(model, device, mode, graph)

    monkeypatch.setattr(Model, "load", loading)
    assert net_run(**enabled("other", "main")).code == 0
    assert seen == ["other"]


def test_the_log_of_a_profile_keeps_to_its_number_of_events(net_run: Any, tmp_path: Path) -> None:
    """An inference with its only launch is two events."""
    profiled = ("--profiling_level", "detailed", "--num_inferences", 9)
    assert net_run(*profiled, profile_configs={"num_max_events": 7}).code == 0
    (path,) = tmp_path.rglob("*.log")
    assert len(read_log(path).inferences) == 3
    ran = net_run(*profiled, profile_configs={"num_max_events": 1})
    assert ran.code == 2 and "one inference of graph 'main' has 2 events at level detailed" in ran.last_line


def test_a_mode_of_the_config_file_yields_to_the_option(net_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def loading(model: Model, device: str | None, mode: str, graph: str | None, perf_profile: object) -> Any:
        seen.append(mode)
        raise ValueError("that is enough")

    monkeypatch.setattr(Model, "load", loading)
    strict = {"context_configs": {"cache_compatibility_mode": "strict"}}
    net_run(**strict)
    net_run("--cache_compatibility_mode", "permissive", **strict)
    assert seen == ["strict", "permissive"]
