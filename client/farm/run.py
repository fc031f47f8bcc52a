"""Run one job: models on tiers.

Tiers work in parallel, each with its own devices and its own performance cache. On a tier, all devices tune one model
after the other. At the end, each model's contexts become one package.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gputune.cache import CacheError
from gputune.client.errors import GputuneError
from gputune.client.farm.engine import FarmError
from gputune.client.farm.jobs import PACKAGE, JobPart, Journal, State
from gputune.client.farm.pool import Pool, TierDevices
from gputune.client.progress import labelled

log = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
MOST_TIERS = 64

Generate = Callable[[Path, str, TierDevices], str]
"""Generates the context of a model for a tier on its devices; what there is to say of it. Raises GputuneError,
CacheError."""
Pack = Callable[[Path, Sequence[str]], str]
"""Puts the contexts of a model for these tiers into one package; what there is to say of it. Raises GputuneError."""


@dataclass(frozen=True)
class Run:
    """Run a job on the devices of a pool. What it does and what becomes of it is in the journal."""

    pool: Pool
    journal: Journal
    models: Sequence[Path]
    generate: Generate
    pack: Pack

    def run(self, tiers: Sequence[str]) -> list[JobPart]:
        """Run all parts and return how each has ended, packages last; one that fails keeps no other from being tried. A
        part that is done already is done again, which its cache makes quick."""
        name, stop = self.pool.job, threading.Event()
        beating = threading.Thread(target=self._beat, args=(stop,), name="journal", daemon=True)
        beating.start()
        for tier in (*tiers, PACKAGE):
            for model in self.models:
                self.journal.tell(name, JobPart(str(model), tier, "queued"))
        ended: State = "failed"
        try:
            with ThreadPoolExecutor(MOST_TIERS, "tier") as threads:
                parts = [part for told in threads.map(self._tier, tiers) for part in told]
            parts += [self._packed(model, parts) for model in self.models]
            ended = "done" if all(part.state == "done" for part in parts) else "failed"
        finally:
            stop.set()
            self.journal.set_state(name, ended)
        return parts

    def _tier(self, tier: str) -> list[JobPart]:
        return [self._part(model, tier) for model in self.models]

    def _part(self, model: Path, tier: str) -> JobPart:
        group, began = self.pool.group(tier), time.monotonic()
        self._tell(JobPart(str(model), tier, "running", ", ".join(self.pool.usable(tier))))
        try:
            with labelled(f"{model.name} on {tier}"):
                said = self.generate(model, tier, group)
            devices = _names(group)
            part = JobPart(str(model), tier, "done", devices, f"{said}, {time.monotonic() - began:.1f} s")
        except (GputuneError, CacheError) as error:
            log.error(f"{model.name} on {tier}: {error}")
            part = JobPart(str(model), tier, "failed", _names(group), str(error))
        finally:
            group.end()
        self._tell(part)
        return part

    def _packed(self, model: Path, parts: Sequence[JobPart]) -> JobPart:
        """Write the package of a model, from what is done of it."""
        own = [part for part in parts if part.model == str(model)]
        done = [part.tier for part in own if part.state == "done"]
        without = "".join(f"; without {part.tier}, which failed" for part in own if part.state != "done")
        try:
            if not done:
                raise FarmError("there is no context to put into the package")
            part = JobPart(str(model), PACKAGE, "done", said=self.pack(model, done) + without)
        except GputuneError as error:
            part = JobPart(str(model), PACKAGE, "failed", said=str(error))
        self._tell(part)
        return part

    def _tell(self, part: JobPart) -> None:
        self.journal.tell(self.pool.job, part)

    def _beat(self, stop: threading.Event) -> None:
        while not stop.wait(BEAT_SECONDS):
            try:
                self.journal.beat(self.pool.job)
            except FarmError as error:  # a disk may have room again by the next time
                log.warning(f"the journal is not updated, so the job may be listed as lost: {error}")


def _names(group: TierDevices) -> str:
    return ", ".join(sorted(group.in_use))
