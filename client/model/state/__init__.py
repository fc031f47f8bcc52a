"""Give a decoder whose past grows a fixed capacity, and an input that says how much of it is there.

A decoder in ONNX has a past of any length, and joins it with new rows at each step. The model that comes out has
static shapes: a state of `capacity` rows, and `length`, how many of them hold something before the step. Nothing is
recognised by the name of a mask or of a position.

pairs.py says which inputs are pasts, and dimensions.py gives all inputs their shapes at any length. growing.py imports
the model at three lengths and compares: each dimension is the past and some rows, or does not grow. What shapes decide
alone is computed at many lengths (by_length.py), and becomes a constant, a shifted row or a table (lookups.py).
rewriting.py makes the graph of the longest past from the rest, in one of the operator sets of its nodes
(operator_sets.py). rules.py says which operators keep rows apart, and what must be masked behind the end; taking.py has
those that take some of the rows. What cannot be proven is refused.
"""

from gputune.client.model.state.decoder import Decoder, Original, Stateful, with_state

__all__ = ["Decoder", "Original", "Stateful", "with_state"]
