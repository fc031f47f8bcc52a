"""Test trials as T4: valid by the published schema, and readable by gputune's own tools."""

import gzip
import json
from pathlib import Path
from typing import Any

from benchmarks.search import spaces
from gputune.cache import PerformanceCache

from .conftest import FAILED, TASK, VALIDITY, run, trial

FIELDS = {"configuration", "objectives", "times", "invalidity", "correctness", "measurements"}


def test_each_task_is_a_document_of_the_published_form_that_our_own_bench_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with PerformanceCache.open(path) as cache:
        cache.store_trials(TASK, VALIDITY, [trial(16), trial(8), trial(16), FAILED])
    result = run("export", path, "--format", "t4", "--output", tmp_path / "t4")
    assert "wrote 1 files" in result.output
    (file,) = (tmp_path / "t4").iterdir()
    content: Any = json.loads(gzip.decompress(file.read_bytes()))
    assert content["schema_version"] == "1.0.0"
    assert content["metadata"]["timeunit"] == "milliseconds"
    assert [set(one) for one in content["results"]] == [FIELDS] * 3
    first, _, failed = content["results"]
    assert first["times"]["runtimes"] == [sample / 1e6 for sample in trial(16).samples_ns]
    assert (failed["invalidity"], failed["correctness"], failed["measurements"]) == ("runtime", 0, [])
    recording = spaces.load(file)
    assert recording.kernel.startswith("Conv-")
    assert len([samples for samples in recording.samples_ns.values() if samples]) == 2
