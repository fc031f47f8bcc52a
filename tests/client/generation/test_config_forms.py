"""Test both forms of a config file, for both commands that take it."""

import json
from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import ConfigError
from gputune.client.generation.config import GraphSettings, read_config
from gputune.client.generation.config.forms import SECTIONS
from gputune.client.generation.config.run_keys import RunConfig, read_run_config


def written(folder: Path, content: object, name: str = "outer.json") -> Path:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder / name


def outer(folder: Path, inner: object | None = None, **sections: object) -> Path:
    """A file of sections, which names one with keys."""
    if inner is not None:
        extension = {"shared_library_path": "/sdk/lib/libQnnGpuNetRunExtensions.so"}
        extension["config_file_path"] = str(written(folder, inner, "inner.json"))
        sections = {"backend_extensions": extension, **sections}
    return written(folder, sections)


def test_sections_and_the_file_that_they_name_are_one_configuration(tmp_path: Path) -> None:
    found = read_config(
        outer(
            tmp_path,
            {"tuning_mode": True, "performance_cache_dir": "caches", "disable_queue_recording": True},
            context_configs={"enable_graphs": ["a", "b"], "memory_limit_hint": 5, "context_priority": "normal"},
            graph_configs=[
                {"graph_names": ["a", "b"], "disable_node_optimizations": True},
                {"graph_name": "b", "disable_queue_recording": False},
            ],
        )
    )
    assert (found.tuning_mode, found.performance_cache_dir) == (True, Path("caches"))
    assert (found.enable_graphs, found.memory_limit_hint) == (("a", "b"), 5)
    assert found.settings_of("a") == GraphSettings(queue_recording=False, fusion=False)
    assert found.settings_of("b") == GraphSettings(fusion=False), "what comes later counts"
    assert found.settings_of("c") == GraphSettings(queue_recording=False)


def test_graph_names_narrow_the_keys_beside_them(tmp_path: Path) -> None:
    found = read_config(
        written(tmp_path, {"graph_names": ["a"], "disable_memory_optimizations": True, "memory_search_steps": 0})
    )
    assert [found.settings_of(name).shared_memory for name in "ab"] == [False, True]
    assert found.memory_search_steps == 0, "it is of the whole context"


def test_what_net_run_takes(tmp_path: Path) -> None:
    path = outer(
        tmp_path,
        {},
        context_configs={"enable_graphs": ["a"], "cache_compatibility_mode": "strict"},
        profile_configs={"num_max_events": 100},
    )
    assert read_run_config(path) == RunConfig("normal", ("a",), "strict", 100)
    assert read_run_config(None) == RunConfig()


def context(**keys: object) -> dict[str, object]:
    return {"context_configs": keys}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"backend_extension": {}}, "unknown key 'backend_extension'; did you mean 'backend_extensions'?"),
        ({"context_configs": {}, "tuning_mode": True}, "move it to the file that backend_extensions names"),
        ({"context_configs": {}, "context_confics": {}}, "did you mean 'context_configs'?"),
        ({"context_configs": []}, "context_configs must be a JSON object, not []"),
        ({"graph_configs": {}}, "graph_configs must be a list of objects, not {}"),
        ({"graph_configs": [{"graph_names": ["a"]}, {}]}, "graph_configs[1] names no graph"),
        ({"graph_configs": [{"graph_name": "a", "graph_names": ["a"]}]}, "has graph_name and graph_names"),
        ({"graph_configs": [{"graph_name": "a", "cold": True}]}, "graph_configs[0]: unknown key 'cold'"),
        ({"graph_configs": [{"graph_name": "a", "graph_priority": "high"}]}, "'graph_priority' is refused: queues"),
        (context(enable_graph=["a"]), "unknown key 'enable_graph'; did you mean 'enable_graphs'?"),
        ({"enable_graphs": ["a"]}, "key 'enable_graphs' is one of context_configs; put it there"),
        (context(enable_graphs=[]), "enable_graphs is empty"),
        (context(enable_graphs=["a", "a"]), "enable_graphs names 'a' twice"),
        (context(context_priority="high"), "context_priority: 'high' is not supported"),
        (context(cache_compatibility_mode="strict"), "is refused: it is about loading"),
        ({"profile_configs": {"num_max_events": 3}}, "'num_max_events' is refused: it is about loading"),
        ({"backend_extensions": {"config_path": "x"}}, "unknown key 'config_path'; did you mean 'config_file_path'?"),
        ({"backend_extensions": {"config_file_path": "nowhere.json"}}, "config file nowhere.json cannot be read"),
        ({"backend_extensions": {"shared_library_path": "libQnnHtpNetRunExtensions.so"}}, "is no extension for GPUs"),
        ({"graph_names": ["a"]}, "graph_names names the graphs that keys next to it are for"),
        (
            {"disable_memory_optimizations": True, "memory_limit_hint": 3},
            "memory_limit_hint is about how tensors share",
        ),
    ],
)
def test_what_does_not_bind_is_an_error(tmp_path: Path, content: Any, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(written(tmp_path, content))
    assert complaint in str(caught.value)


def test_a_key_that_both_files_have_is_an_error(tmp_path: Path) -> None:
    path = outer(tmp_path, {"memory_limit_hint": 3}, **context(memory_limit_hint=4))
    with pytest.raises(ConfigError, match=r"'memory_limit_hint' stands in .*inner.json, too"):
        read_config(path)


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_do_not_nest(tmp_path: Path, section: str) -> None:
    with pytest.raises(ConfigError, match=f"may not have sections of its own: {section}"):
        read_config(outer(tmp_path, {section: {}}))


def test_the_effort_is_an_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="key 'tuning_effort' is refused: the effort is an option, --tuning_effort"):
        read_config(written(tmp_path, {"tuning_effort": "quick"}))
    with pytest.raises(ConfigError, match="did you mean 'tuning_effort'"):
        read_config(written(tmp_path, {"tuning_efort": "quick"}))


@pytest.mark.parametrize(
    ("inner", "complaint"),
    [
        ({"tuning_mode": True}, "'tuning_mode' is refused: it is a key of context-binary-generator"),
        ({"perf_hint": "high"}, "'perf_hint' is refused: clocks are an option, --perf_profile"),
        ({"enable": True}, "unknown key 'enable'"),
    ],
)
def test_net_run_refuses_keys_of_the_generator(tmp_path: Path, inner: object, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_run_config(outer(tmp_path, inner))
