"""Let `import gputune.onnxruntime` find its module, which is runtime/onnxruntime.py."""

import sys

from gputune.runtime import onnxruntime
from gputune.runtime.onnxruntime import *  # noqa: F403 for type checkers

sys.modules[__name__] = onnxruntime
