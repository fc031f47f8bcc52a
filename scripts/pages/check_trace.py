"""Open a Chrome trace in catapult's viewer (chrome://tracing) in a headless Chromium, and count what it took from it.

The exit code is 1 if the viewer warns, or has other counts of slices, arrows or counter values than the file. The
viewer is in the package torch-tb-profiler and needs the package webcomponents.js in a Chromium of today. If
GPUTUNE_TRACE_PROCESSOR names Perfetto's trace_processor_shell, that reads the trace, too, and must report the same
counts and no errors.
"""

import argparse
import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from dataclasses import fields
from pathlib import Path

from gputune.client.viewer.features import Features
from gputune.client.viewer.profile import open_profile
from gputune.client.viewer.traces.chrome_trace import write_chrome_trace
from gputune.client.viewer.traces.timeline import Timeline
from pages.headless import Browser, chromium, find_chromium
from pages.made_up_log import write_log

WORK = Path(__file__).parents[2] / "build" / "check_trace"
VIEWER, POLYFILL = "torch-tb-profiler==0.4.3", "webcomponents.js@0.7.24"
SECONDS = 300.0
"""For as long the browser may take."""

PROCESSOR = "GPUTUNE_TRACE_PROCESSOR"
QUERY = """SELECT
    (SELECT COUNT(*) FROM slice) AS slices,
    (SELECT COUNT(*) FROM flow) AS arrows,
    (SELECT COUNT(*) FROM counter) AS [values],
    (SELECT COALESCE(SUM(value), 0) FROM stats WHERE severity IN ('error', 'data_loss')) AS errors"""
_COUNTED = """(() => {
    const model = new tr.Model();
    new tr.importer.Import(model).importTraces([window.traceText]);
    const found = {slices: 0, arrows: model.flowEvents.length, bound: 0, values: 0};
    for (const process of model.getAllProcesses()) {
        for (const thread of Object.values(process.threads)) found.slices += thread.sliceGroup.length;
        for (const counter of Object.values(process.counters)) found.values += counter.timestamps.length;
    }
    for (const flow of model.flowEvents) found.bound += Boolean(flow.startSlice && flow.endSlice);
    const warnings = model.importWarnings.map(one => one.type + ': ' + one.message);
    return {found: found, warnings: warnings, range: [model.bounds.min, model.bounds.max]};
})()"""


def expected(trace: Path) -> dict[str, int]:
    """What the viewer must have of a file. Each arrow must be bound to slices at both ends."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    phases = Counter(event["ph"] for event in events)
    return {"slices": phases["X"], "arrows": phases["s"], "bound": phases["s"], "values": phases["C"]}


def page_with(trace: Path) -> Path:
    """A page that has the viewer and the text of a trace."""
    page = WORK / "page.html"
    content = _viewer().read_text(encoding="utf-8")
    scripts = '<script src="webcomponents.js"></script><script src="trace.js"></script>'
    page.write_text(content.replace("<head", f"{scripts}<head", 1), encoding="utf-8")
    text = trace.read_text(encoding="utf-8")
    (WORK / "trace.js").write_text(f"window.traceText = {json.dumps(text)};", encoding="utf-8")
    return page


def made_up() -> Path:
    """A trace of a few inferences with all features."""
    log, schematic = write_log(WORK, 25)
    timeline = Timeline(open_profile([log], schematic), Features(**{each.name: True for each in fields(Features)}))
    write_chrome_trace(timeline, WORK / "chrometrace.json")
    return WORK / "chrometrace.json"


def check(browser: Browser, trace: Path) -> list[str]:
    """What is wrong with a trace."""
    browser.load(page_with(trace).as_uri())
    took = browser.value(_COUNTED)
    wanted = expected(trace)
    print(", ".join(f"{name} {count} of {wanted[name]}" for name, count in took["found"].items()))
    print(f"from {took['range'][0]:.6f} to {took['range'][1]:.6f} ms, {len(took['warnings'])} warnings")
    wrong = [
        f"{name}: {took['found'][name]}, not {wanted[name]}" for name in wanted if took["found"][name] != wanted[name]
    ]
    return [*wrong, *took["warnings"]]


def processed(processor: str, trace: Path) -> list[str]:
    """What Perfetto's trace processor says is wrong with a trace. Raises OSError, CalledProcessError."""
    query = WORK / "query.sql"
    query.write_text(QUERY, encoding="utf-8")
    done = subprocess.run([processor, "-q", str(query), str(trace)], capture_output=True, text=True, check=True)
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    took = {name: int(float(value)) for name, value in row.items()}
    wanted = {name: count for name, count in expected(trace).items() if name in took} | {"errors": 0}
    print(", ".join(f"{name} {count} of {wanted[name]}" for name, count in took.items()) + " in the trace processor")
    return [
        f"trace processor: {name}: {took[name]}, not {wanted[name]}" for name in wanted if took[name] != wanted[name]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path, nargs="?", help="a chrometrace.json; a made-up one otherwise")
    options = parser.parse_args()
    path = find_chromium()
    if path is None:
        sys.exit("check_trace: there is no Chromium; on Debian: apt-get install chromium")
    WORK.mkdir(parents=True, exist_ok=True)
    trace = options.trace or made_up()
    with chromium(path, SECONDS) as browser:
        wrong = check(browser, trace)
    if processor := os.environ.get(PROCESSOR):
        wrong += processed(processor, trace)
    for line in wrong:
        print(f"WRONG  {line}")
    sys.exit(bool(wrong))


def _viewer() -> Path:
    """The viewer's page; it and what it needs are fetched once."""
    page, script = WORK / "trace_viewer_full.html", WORK / "webcomponents.js"
    if not page.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(WORK), VIEWER]
        subprocess.run(pip, check=True)
        with zipfile.ZipFile(next(WORK.glob("torch_tb_profiler*.whl"))) as wheel:
            page.write_bytes(wheel.read("torch_tb_profiler/static/trace_viewer_full.html"))
    if not script.exists():
        if (npm := shutil.which("npm")) is None:
            sys.exit("check_trace: npm is needed once, to fetch webcomponents.js; on Debian: apt-get install npm")
        subprocess.run([npm, "pack", "--silent", POLYFILL], cwd=WORK, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(next(WORK.glob("webcomponents.js-*.tgz"))) as package:
            content = package.extractfile("package/webcomponents.min.js")
            assert content is not None
            script.write_bytes(content.read())
    return page


if __name__ == "__main__":
    main()
