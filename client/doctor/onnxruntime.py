"""Check whether onnxruntime can run contexts by gputune's plugin, in a child process that registers it."""

from __future__ import annotations

import importlib.util
import sys

from gputune.client.doctor.findings import Finding
from gputune.client.doctor.software import answer_of
from gputune.runtime.onnxruntime import PluginError, library_path

REGISTER_SECONDS = 60.0
_REGISTER = """
import sys
from gputune.runtime import onnxruntime as plugin
try:
    plugin.register()
except plugin.PluginError as error:
    sys.exit(str(error))
import onnxruntime
count = len(plugin.devices())
print(f"onnxruntime {onnxruntime.__version__} runs contexts on {count} device{'' if count == 1 else 's'}")
"""


def check_onnxruntime() -> Finding:
    """Return what works: a note where something is missing, since nothing else needs the plugin."""
    if importlib.util.find_spec("onnxruntime") is None:
        return Finding("software", "note", "onnxruntime is not installed: contexts run without it")
    try:
        library = library_path()  # here, as building may take longer than registering
    except PluginError as error:
        return Finding("software", "note", str(error))
    said, failure = answer_of([sys.executable, "-c", _REGISTER], REGISTER_SECONDS)
    if failure:
        return Finding("software", "note", f"contexts do not run in onnxruntime: {failure}")
    return Finding("software", "ok", f"{said} ({library})")
