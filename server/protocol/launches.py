"""Send the launches inside requests so that their source texts travel once per connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from gputune.core.batches import ProfileKernel
from gputune.core.launches import Launch, Variant
from gputune.server.protocol.messages import CompileKernel, ExecuteKernel

T = TypeVar("T")


def launches_of(request: object) -> Iterator[Launch]:
    """Yield every launch of a request, in the order in which source texts are sent and looked up."""
    match request:
        case CompileKernel():
            yield from _launches_of(request.variant)
        case ProfileKernel():
            for variant in request.variants:
                yield from _launches_of(variant)
            if request.baseline is not None:
                yield from _launches_of(request.baseline)
        case ExecuteKernel():
            yield from request.launches


def with_launches(request: T, change: Callable[[Launch], Launch]) -> T:
    """Return the request with `change` applied to every launch, in the order of launches_of."""

    def changed(variant: Variant) -> Variant:
        prepare = tuple(map(change, variant.prepare))
        return replace(variant, prepare=prepare, main=change(variant.main))

    match request:
        case CompileKernel():
            return replace(request, variant=changed(request.variant))
        case ProfileKernel():
            variants = tuple(map(changed, request.variants))
            baseline = None if request.baseline is None else changed(request.baseline)
            return replace(request, variants=variants, baseline=baseline)
        case ExecuteKernel():
            return replace(request, launches=tuple(map(change, request.launches)))
    return request


def _launches_of(variant: Variant) -> Iterator[Launch]:
    yield from variant.prepare
    yield variant.main
