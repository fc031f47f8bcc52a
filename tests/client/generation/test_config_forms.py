"""Test both forms of a config file, for both commands that take it."""

import json
from pathlib import Path

import pytest

from gputune.client.errors import ConfigError
from gputune.client.options.config import GraphSettings, read_config
from gputune.client.options.config_file import SECTIONS, read_file
from gputune.client.options.run import KEYS


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
    keys = {"enable_graphs": ("a",), "cache_compatibility_mode": "strict", "num_max_events": 100}
    assert read_file(path, KEYS).keys == keys


def context(**keys: object) -> dict[str, object]:
    return {"context_configs": keys}


def test_a_key_that_both_files_have_is_an_error(tmp_path: Path) -> None:
    path = outer(tmp_path, {"memory_limit_hint": 3}, **context(memory_limit_hint=4))
    with pytest.raises(ConfigError, match=r"'memory_limit_hint' stands in .*inner.json, too"):
        read_config(path)


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_do_not_nest(tmp_path: Path, section: str) -> None:
    with pytest.raises(ConfigError, match=f"may not have sections of its own: {section}"):
        read_config(outer(tmp_path, {section: {}}))
