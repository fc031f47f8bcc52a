"""Test the config file of throughput-net-run."""

import json
from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import ConfigError
from gputune.client.run.throughput.config import DEFAULT_SECONDS, ContextPlan, Plan, read_plan


def plan_of(folder: Path, content: object) -> Plan:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_plan(path)


def test_all_keys_are_read(tmp_path: Path) -> None:
    full = {
        "path": "a.bin", "name": "first", "graph": "main", "input_list": "a.txt", "instances": 3, "group": "g",
        "priority": "high", "perf_profile": "burst",
    }  # fmt: skip
    content: dict[str, Any] = {"contexts": [full, {"path": "x/b.bin", "group": "h"}, {"path": "c.bin"}]}
    content |= {"groups": {"g": {"streams": 2}}, "device": "null", "duration": "2m", "warmup": 7}
    assert plan_of(tmp_path, content) == Plan(
        (
            ContextPlan("first", Path("a.bin"), "main", Path("a.txt"), 3, "g", "high", "burst"),
            ContextPlan("b", Path("x/b.bin"), group="h"),
            ContextPlan("c", Path("c.bin")),
        ),
        {"g": 2, "h": 1},
        "null",
        120.0,
        7,
    )
    assert plan_of(tmp_path, {"contexts": [{"path": "c.bin"}], "duration": 0.5}).seconds == 0.5
    assert plan_of(tmp_path, {"contexts": [{"path": "c.bin"}]}).seconds == DEFAULT_SECONDS


ONE = {"path": "a.bin"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not JSON"),
        ('{"warmup": 1, "warmup": 2}', "key 'warmup' occurs twice"),
        ([], "must be a JSON object, like .*, not \\[\\]"),
        ({}, 'needs "contexts"'),
        ({"contexts": []}, "contexts is empty"),
        ({"contexts": [{}]}, r'contexts\[0\] needs "path"'),
        ({"contexts": [ONE], "group": {}}, "unknown key 'group'; did you mean 'groups'"),
        ({"contexts": [ONE | {"prio": 1}]}, r"contexts\[0\]: unknown key 'prio'; did you mean 'priority'"),
        ({"contexts": [ONE | {"priority": 1}]}, "priority must be one of low, normal, high, not 1"),
        ({"contexts": [ONE | {"priority": "high"}]}, "'a': priority 'high' orders turns within a group"),
        ({"contexts": [ONE | {"instances": 0}]}, "instances must be a whole number from 1 to"),
        ({"contexts": [ONE | {"instances": True}]}, "instances must be a whole number"),
        ({"contexts": [ONE | {"perf_profile": "bust"}]}, "perf_profile: there is no perf profile 'bust'.*burst"),
        ({"contexts": [ONE | {"name": "a/b"}]}, "has a slash"),
        ({"contexts": [ONE, ONE]}, "2 contexts are called 'a'; give each a \"name\""),
        ({"contexts": [ONE], "groups": {"g": {}}}, "groups: no context is in group 'g'"),
        ({"contexts": [ONE | {"group": "g"}], "groups": {"g": {"stream": 1}}}, "groups: g: unknown key 'stream'"),
        ({"contexts": [ONE], "duration": "soon"}, "duration: 'soon' is not a time"),
        ({"contexts": [ONE], "duration": True}, "duration must be a text, not true"),
        ({"contexts": [ONE], "duration": -1}, "duration: '-1.000000' is not a time"),
    ],
)  # fmt: skip
def test_what_does_not_bind_is_refused(tmp_path: Path, content: object, complaint: str) -> None:
    with pytest.raises(ConfigError, match=rf"^config file .*config\.json.*{complaint}"):
        plan_of(tmp_path, content)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.json cannot be read: No such file"):
        read_plan(tmp_path / "gone.json")
