"""Compile cases and look at their kernels. Results are kept in build/gpu-check, so that a second run takes seconds."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import get_ident
from typing import Any

from gpu.checking.cases import Case
from gpu.checking.rules import Look
from gpu.compiling.compilers import COMPILERS, Compiler, NotCompiled, readers
from gpu.compiling.listing import Facts
from gpu.compiling.tools import ROOT, Tools
from gputune.core.json_text import json_text, json_value

KEPT = ROOT / "build" / "gpu-check"


@dataclass(frozen=True)
class Results:
    """What compilers make of texts, kept in a folder by everything that decides it."""

    tools: Tools = field(default_factory=Tools)
    folder: Path = KEPT

    @cached_property
    def compilers(self) -> Mapping[str, Compiler]:
        """The compilers that can run, by maker."""
        found = {maker: kind(self.tools) for maker, kind in COMPILERS.items()}
        return {maker: compiler for maker, compiler in found.items() if not compiler.missing}

    @cached_property
    def left_out(self) -> list[str]:
        """What is not checked for want of a tool, in words."""
        found = {maker: kind(self.tools).missing for maker, kind in COMPILERS.items()}
        return [f"{maker}'s devices: there is no {', '.join(missing)}" for maker, missing in found.items() if missing]

    def looks(self, case: Case) -> Iterator[Look]:
        """Yield the kernels of a case, with what became of them if a compiler for the device can run."""
        compiler = self.compilers.get(case.device.maker)
        if compiler is None:
            yield from (Look(case, kernel) for kernel in case.kernels)
            return
        kept = self._kept(compiler, case)
        for kernel in case.kernels:
            facts = kept.get("found", {}).get(kernel.entry)
            yield Look(case, kernel, None if facts is None else Facts(**facts), kept.get("fault", ""))

    def _kept(self, compiler: Compiler, case: Case) -> dict[str, Any]:
        """What was kept of a text, or is now."""
        deciding = [compiler.version, self._readers, case.device.architecture, case.source, case.options]
        path = self.folder / f"{hashlib.sha256(json_text(deciding).encode()).hexdigest()}.json"
        if path.is_file():
            return dict(json_value(path.read_bytes()))
        try:
            found = compiler.compile(case.source, case.options, case.device.architecture)
            result: dict[str, Any] = {"found": {name: facts.plain() for name, facts in found.items()}}
        except NotCompiled as error:
            result = {"fault": str(error)}
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}-{get_ident()}")  # another thread may be at it, too
        part.write_text(json_text(result), encoding="utf-8")
        part.replace(path)
        return result

    @cached_property
    def _readers(self) -> str:
        return readers()
