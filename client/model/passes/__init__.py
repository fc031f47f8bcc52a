"""Simplify graphs by passes: each takes a graph and returns a graph that computes the same with fewer nodes.

A pass finds nodes by the tensors that they compute, since nodes may share a name. It calls additions.py to name new
nodes and tensors.
"""

from collections.abc import Callable

from gputune.client.model.graph import Graph
from gputune.client.model.passes.absorb_into_products import absorb_into_products
from gputune.client.model.passes.compute_once import compute_once
from gputune.client.model.passes.drop_identity import drop_identity
from gputune.client.model.passes.fold_affine import fold_affine
from gputune.client.model.passes.fold_depth import fold_depth
from gputune.client.model.passes.fuse_elementwise import fuse_elementwise
from gputune.client.model.passes.gated import recognise_gated
from gputune.client.model.passes.gather_numbers import gather_numbers
from gputune.client.model.passes.joined_maps import pool_parts
from gputune.client.model.passes.layer_norm import recognise_layer_norm
from gputune.client.model.passes.lift_lines import lift_lines
from gputune.client.model.passes.one_form import one_form
from gputune.client.model.passes.one_hot import look_up_one_hot
from gputune.client.model.passes.quantised import in_whole_numbers
from gputune.client.model.passes.rearrangements import recognise_rearrangements
from gputune.client.model.passes.recurrent import project_inputs
from gputune.client.model.passes.shared_heads import share_heads
from gputune.client.model.passes.sink_reshapes import sink_reshapes
from gputune.client.model.passes.softmax import mask_softmax, recognise_softmax
from gputune.client.model.passes.transposes import order_transposes
from gputune.client.model.passes.without_encodings import without_encodings

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    without_encodings,  # before integers are computed, of which it needs fewer
    in_whole_numbers,  # before all others, which know floats and no quantised numbers
    gather_numbers,  # behind both, which know no gathers of whole numbers
    project_inputs,  # before the rest: the product that it makes is one like any other
    look_up_one_hot,  # before its product is one of many forms
    one_form,  # first: everything behind it knows one spelling of each operator
    compute_once,  # behind it, since equal nodes are spelled alike then
    share_heads,  # before the reshapes around a repetition become other nodes
    fold_depth,  # before the passes that see through its transposes and reshapes
    lift_lines,  # before all that is done with maps
    order_transposes,  # behind it, since a Flatten is a Reshape then
    recognise_rearrangements,  # behind both: what they can make of a Reshape and a Transpose may need no kernel at all
    drop_identity,  # patterns then see the real producers; behind one_form, which shows which reshapes do nothing
    sink_reshapes,  # behind both, which leave fewer of them, and before what is elementwise goes elsewhere
    recognise_gated,  # before their Add, Mul and Div could go elsewhere
    recognise_layer_norm,  # before its parts could go elsewhere
    fold_affine,  # before activations are fused, since only a bare result can take a scale
    recognise_softmax,  # before its parts could go elsewhere, and its NaN masked
    mask_softmax,  # anywhere: it knows one pattern
    absorb_into_products,  # before factors and what is added become chains
    fuse_elementwise,  # it takes whatever elementwise operators are left
    pool_parts,  # behind it: a pooling has its whole chain then, and what reads it is known
)


def simplify(graph: Graph) -> Graph:
    """Return the graph after all passes: no elementwise operators but Elementwise nodes, others with fused chains.

    Raises ModelError for a supported operator used in a way that is not.
    """
    for transform in PASSES:
        graph = transform(graph)
    return graph
