"""Name the ways in which floats of a model are stored and computed, and the rules of its quantised nodes."""

from gputune.core.dtypes import FLOAT, HALF

STORED = "float16_storage"
PRECISION_MODES = (FLOAT, HALF, STORED)
"""How floats are stored and computed; see Precision of client/model/graph.py."""

EXACT, IN_FLOATS = "exact", "float"
RULES = (EXACT, IN_FLOATS)
"""The rules of quantised nodes: those of docs/quantised.md, or none, so that floats are not rounded between them."""
MIXED = "mixed"
"""The rules of a graph for which exact ones were asked, and in which some nodes are exceptions."""
