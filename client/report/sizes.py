"""Break down the size of a context binary by content."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from gputune.client.context.memory.weights import LARGER
from gputune.kernels.ops.matmul import KEPT
from gputune.runtime.context.format import read_header
from gputune.runtime.context.records import CONSTANT_KINDS, BufferRef, ContextHeader

WIDENED = f"-D{KEPT}=0"
"""An option of programs whose quantised weights are floats in memory."""
PACKED, AS_IN_MODEL = "weights as kernels read them", "weights as the model has them"


def packed_bytes(header: ContextHeader) -> int:
    """Return the bytes that a device packs when it loads all graphs of a context."""
    return sum(part.packed_bytes for part in header.packing)


def split_of(header: ContextHeader, nbytes: int) -> dict[str, int]:
    """Return the bytes of a context, which has so many, by what they are."""
    lengths: Counter[str] = Counter()
    for section in header.sections:
        lengths[section.kind] += section.length
    read = {header.weights[index] for graph in header.graphs for index in graph.constants("weights")}
    sources = {header.weights[index] for part in header.packing for index in part.constants("weights")} - read
    as_in_model = sum(header.sections[place].length for place in sources)
    found = {
        PACKED: lengths["weights"] - as_in_model,
        AS_IN_MODEL: as_in_model,
        "programs": lengths["binary"],
        "source of programs": lengths["source"],
    }
    return found | {"the rest": nbytes - sum(found.values())}


def split_line(header: ContextHeader, nbytes: int) -> str:
    """Return the same as a line for people, without what a context does not have."""
    split = {name: part for name, part in split_of(header, nbytes).items() if part}
    return "of its bytes: " + ", ".join(f"{name} {part:,} ({part / nbytes:.1%})" for name, part in split.items())


def widened_bytes(header: ContextHeader) -> int:
    """Return the bytes of quantised weights that kernels of a context read as floats."""
    programs = {place for place, one in enumerate(header.programs) if WIDENED in one.options.split()}
    launches = (launch for graph in header.graphs for launch in graph.launches if launch.program in programs)
    read = {each for launch in launches for each in launch.arguments if isinstance(each, BufferRef)}
    return sum(each.nbytes for each in read if each.kind in CONSTANT_KINDS)


def split_told(path: Path, model_bytes: int, decided: str = "") -> str:
    """Return the line for a context that was just written, beside the bytes of its model's weights, and what was
    decided about these; else what makes it smaller where they take much more. Raises ContextError, OSError."""
    header, nbytes = read_header(path), path.stat().st_size
    line = f"{split_line(header, nbytes)}; the model's weights have {model_bytes:,}"
    if decided:
        line += f": {decided}"
    elif not header.packing and split_of(header, nbytes)[PACKED] > LARGER * model_bytes:
        line += ": --weights compact stores them alone, for a smaller file that takes longer to load"
    if widened := widened_bytes(header):
        line += f"; {widened:,} bytes are numbers of few bits that are widened to floats for products of many rows"
    return line
