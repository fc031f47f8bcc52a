"""Decide by measuring whether a context packs weights when it is loaded, so that its file is smaller.

Kernels such as those of Winograd's convolutions read weights in a form that is larger than the model's. Such weights
alone are packed at load. The target loads both contexts in turns, once: the performance cache keeps what came out, so
that a context is the same when it is made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from gputune.cache import ChainRecord
from gputune.client.context.argument_form import DeviceChoices
from gputune.client.context.builder import Built, Wanted
from gputune.client.context.context_runner import ContextRunner
from gputune.client.context.memory.weights import LARGER, weight_bytes
from gputune.client.errors import GputuneError
from gputune.core.errors import ContextError

log = logging.getLogger(__name__)

LONGER = 1.2
"""A smaller context ships if it takes at most so many times as long to load."""


def packed_or_smaller(
    runner: ContextRunner,
    packed: Built,
    make: Callable[..., Built],
    wanted: Sequence[Wanted],
    choices: DeviceChoices,
) -> tuple[Built, str]:
    """Return the context that ships, and for people what decided; empty where weights are no larger than the model's,
    or nothing could be measured. make: as build_all of what is wanted. Raises CacheError."""
    runner.share = "finalizing"
    if sum(map(len, packed.weights)) <= LARGER * weight_bytes(one.plan for one in wanted):
        return packed, ""
    launches = [(one.task, one.entry, one.global_size) for graph in packed.graphs for one in graph.launches]
    question = "weights made at load", launches, [len(each) for each in packed.weights]
    record = choices.record(*question)
    known = None if record is None else record.measured.get("loads_longer")
    longer = known if isinstance(known, float) else None
    if longer is None and (choices.frozen or not runner.has_time_for(1)):
        return packed, ""
    try:
        other = make(compact=True, growth=LARGER)
        if not other.packing:
            return packed, ""
        if longer is None:
            with runner:
                packed_ns, other_ns = runner.load_ns([packed, other])
            longer = other_ns / packed_ns
            choices.keep(ChainRecord({}, {}, 0.0, {"loads_longer": longer}), *question)
    except (GputuneError, ContextError, OSError) as error:
        log.warning(f"weights are stored as kernels read them, because loading was not measured: {error}")
        return packed, ""
    if longer <= LONGER:
        return other, f"larger forms of them are made at load, which takes {longer:.2f} times as long (--weights auto)"
    return packed, f"making larger forms of them at load would take {longer:.2f} times as long (--weights auto)"
