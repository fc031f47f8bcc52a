"""Keep compiled programs for reuse by any context, so that contexts can be made again without compiling."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gputune.cache import PerformanceCache
from gputune.cache.programs import compiler_of, program_digest
from gputune.client.context.builder import Maker
from gputune.core.batches import Compiled
from gputune.core.identity import DeviceIdentity
from gputune.server.protocol.messages import CompileKernel, ExecuteKernel


class KernelRepository:
    """A maker that asks another to compile only what is not in cache files. counts: programs found and compiled;
    foreign: digests of those that were compiled although there was one of another installation; compiling_seconds: what
    all compiling has taken."""

    def __init__(self, maker: Maker, caches: Sequence[PerformanceCache], settings: Mapping[str, str]) -> None:
        """Take caches, where programs are looked for, in this order; they are kept in the first, if that can be
        written. settings: those of the target that change code."""
        self._maker = maker
        self._caches = caches
        self._compiler = compiler_of(DeviceIdentity.from_dict(maker.device), settings)
        self.counts: Counter[str] = Counter(found=0, compiled=0)
        self.foreign: set[str] = set()
        self.compiling_seconds = 0.0

    @property
    def device(self) -> dict[str, object]:
        return self._maker.device

    def upload(self, data: Any) -> int:
        return self._maker.upload(data)

    def free(self, *buffers: int) -> None:
        self._maker.free(*buffers)

    def execute_kernel(self, request: ExecuteKernel) -> Mapping[str, memoryview]:
        return self._maker.execute_kernel(request)

    def compile_kernels(self, requests: Sequence[CompileKernel], compiled: Callable[[int, Compiled], object]) -> None:
        """Take programs from the caches, have the others compiled, and keep them. Raises CacheError, and what the maker
        does."""
        digests = [program_digest(request.variant.main, self._compiler) for request in requests]
        missing = []
        for place, digest in enumerate(digests):
            if (binary := self._found(digest)) is None:
                missing.append(place)
            else:
                self.counts["found"] += 1
                compiled(place, Compiled(binary, 0, 0))

        def keep(number: int, reply: Compiled) -> None:
            place = missing[number]
            self.counts["compiled"] += 1
            self._keep(digests[place], bytes(reply.binary))
            compiled(place, reply)

        if missing:
            begun = time.monotonic()
            try:
                self._maker.compile_kernels([requests[place] for place in missing], keep)
            finally:
                self.compiling_seconds += time.monotonic() - begun

    def _found(self, digest: str) -> bytes | None:
        for place, cache in enumerate(self._caches):
            if (binary := cache.program_of(digest)) is not None:
                if place > 0:
                    self._keep(digest, binary)
                return binary
        if any(digest in cache.foreign for cache in self._caches):
            self.foreign.add(digest)
        return None

    def _keep(self, digest: str, binary: bytes) -> None:
        if self._caches[0].writable:
            self._caches[0].keep_program(digest, binary)
