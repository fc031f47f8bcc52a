"""Read config files.

forms.py reads both forms of them, and values.py interprets values. generator_keys.py and run_keys.py know the keys of
the context binary generator and of net-run, and precision.py what is asked of the precision of graphs.
"""

from gputune.client.generation.config.generator_keys import (
    HOST,
    SUPPORTED,
    UNSUPPORTED,
    Config,
    GraphSettings,
    check_graph_names,
    choose_effort,
    read_config,
)

__all__ = [
    "HOST",
    "SUPPORTED",
    "UNSUPPORTED",
    "Config",
    "GraphSettings",
    "check_graph_names",
    "choose_effort",
    "read_config",
]
