"""Mark tests that look into Python's runtime, which does not run contexts if GPUTUNE_RUNTIME says so."""

import pytest

from gputune.runtime.contexts.device import runs_in_c

in_python = pytest.mark.skipif(runs_in_c(), reason="it looks into Python's runtime, and contexts run in C")
