"""Compiled programs are kept, whatever they were compiled for: so contexts of defaults, of pinned configurations and of
finalists are made again without compiling."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gputune.cache import PerformanceCache, canonical_json
from gputune.client.context.builder import Maker
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import Launch
from gputune.server.protocol.messages import Compiled, CompileKernel, ExecuteKernel


class KernelRepository:
    """A maker that asks another to compile only what is not in a cache file. counts: programs found and compiled."""

    def __init__(self, maker: Maker, cache: PerformanceCache, settings: Mapping[str, str]) -> None:
        """settings: those of the target that change code."""
        self._maker = maker
        self._cache = cache
        device = DeviceIdentity.from_dict(maker.device)
        self._compiler = {
            "device": device.name,
            "compute_units": device.compute_units,
            "platform": device.platform,
            "platform_version": device.platform_version,
            "device_version": device.device_version,
            "driver": device.driver_version,
            "settings": dict(settings),
        }
        self.counts: Counter[str] = Counter(found=0, compiled=0)

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
        """The programs from the cache, the others compiled and kept there. Raises CacheError, and what the maker
        does."""
        digests = [self._digest(request.variant.main) for request in requests]
        missing = []
        for place, digest in enumerate(digests):
            if (binary := self._cache.program_of(digest)) is None:
                missing.append(place)
            else:
                self.counts["found"] += 1
                compiled(place, Compiled(binary, 0, 0))

        def keep(number: int, reply: Compiled) -> None:
            place = missing[number]
            self.counts["compiled"] += 1
            self._cache.keep_program(digests[place], bytes(reply.binary))
            compiled(place, reply)

        if missing:
            self._maker.compile_kernels([requests[place] for place in missing], keep)

    def _digest(self, main: Launch) -> str:
        """Of the source and options, of the sizes that some compilers make code for, and of the compiler."""
        kernels = [[kernel.entry, kernel.global_size, kernel.local_size] for kernel in main.sequence]
        what = {"source": main.source_sha256, "options": main.options, "kernels": kernels, "compiler": self._compiler}
        return hashlib.sha256(canonical_json(what).encode()).hexdigest()
