"""Test the config file of throughput-net-run."""

import json
from pathlib import Path
from typing import Any

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
