"""Decide by measuring whether a context packs weights when it is loaded, so that its file is smaller.

Kernels such as those of Winograd's convolutions read weights in a form that is larger than the model's. Such weights
alone are packed at load. The target loads both contexts in turns, once: the performance cache keeps what came out, so
that a context is the same when it is made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from gputune.cache import ChainRecord, PerformanceCache
from gputune.client.context.argument_form import choice_digest
from gputune.client.context.builder import Built, Wanted
from gputune.client.context.context_runner import ContextRunner
from gputune.client.context.memory.weights import LARGER, weight_bytes
from gputune.client.errors import GputuneError
from gputune.core.errors import ContextError
from gputune.core.identity import DeviceIdentity

log = logging.getLogger(__name__)

LONGER = 1.2
"""A smaller context ships if it takes at most so many times as long to load."""


class Loading:
    """What the cache of a device knows of loading contexts. Arguments are those of FormChoice."""

    def __init__(
        self, cache: PerformanceCache, device: DeviceIdentity, settings: Mapping[str, str], frozen: bool
    ) -> None:
        self.frozen = frozen
        self._cache, self._device, self._settings = cache, device, settings

    def longer(self, built: Built) -> float | None:
        """Return how many times as long a smaller form of a context takes to load, if that is known. Raises
        CacheError."""
        record = self._cache.chain_of(self._digest(built))
        known = None if record is None else record.measured.get("loads_longer")
        return known if isinstance(known, float) else None

    def keep(self, built: Built, longer: float) -> None:
        """Keep what was measured. Raises CacheError."""
        self._cache.conclude_chain(self._digest(built), ChainRecord({}, {}, 0.0, {"loads_longer": longer}))

    def _digest(self, built: Built) -> str:
        launches = [(one.task, one.entry, one.global_size) for graph in built.graphs for one in graph.launches]
        what = launches, [len(each) for each in built.weights]
        return choice_digest(self._device, self._settings, "weights made at load", what)


def packed_or_smaller(
    runner: ContextRunner,
    packed: Built,
    make: Callable[..., Built],
    wanted: Sequence[Wanted],
    loading: Loading,
) -> tuple[Built, str]:
    """Return the context that ships, and for people what decided; empty where weights are no larger than the model's,
    or nothing could be measured. make: as build_all of what is wanted. Raises CacheError."""
    runner.share = "finalizing"
    if sum(map(len, packed.weights)) <= LARGER * weight_bytes(one.plan for one in wanted):
        return packed, ""
    longer = loading.longer(packed)
    if longer is None and (loading.frozen or not runner.has_time_for(1)):
        return packed, ""
    try:
        other = make(compact=True, growth=LARGER)
        if not other.packing:
            return packed, ""
        if longer is None:
            with runner:
                packed_ns, other_ns = runner.load_ns([packed, other])
            loading.keep(packed, longer := other_ns / packed_ns)
    except (GputuneError, ContextError, OSError) as error:
        log.warning(f"weights are stored as kernels read them, because loading was not measured: {error}")
        return packed, ""
    if longer <= LONGER:
        return other, f"larger forms of them are made at load, which takes {longer:.2f} times as long (--weights auto)"
    return packed, f"making larger forms of them at load would take {longer:.2f} times as long (--weights auto)"
