"""Map each operator to the function that lowers it, by combining the tables of the other modules in this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gputune.client.model.graph import Node
from gputune.client.model.lowering import (
    convolutions,
    elementwise,
    gathers,
    moves,
    normalisations,
    ordering,
    places,
    pooling,
    products,
    recurrent,
    reductions,
    resizing,
    scatters,
    typed,
)
from gputune.client.model.lowering.emitting import Lowering

LOWERINGS: Mapping[str, Callable[[Lowering, Node], None]] = {
    **convolutions.LOWERINGS,
    **elementwise.LOWERINGS,
    **gathers.LOWERINGS,
    **moves.LOWERINGS,
    **normalisations.LOWERINGS,
    **ordering.LOWERINGS,
    **places.LOWERINGS,
    **pooling.LOWERINGS,
    **products.LOWERINGS,
    **recurrent.LOWERINGS,
    **reductions.LOWERINGS,
    **resizing.LOWERINGS,
    **scatters.LOWERINGS,
    **typed.LOWERINGS,
}
