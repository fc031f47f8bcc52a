"""The page of a memory report: the arenas of each graph as pictures, and their tensors as a table.

Pictures are stretched to their column, so the text around them is HTML that keeps its size on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputune.client.report.html.document import document
from gputune.client.report.html.markup import Cell, Column, figure, table, text, tile
from gputune.client.report.html.scales import Scale, bytes_text, counted
from gputune.client.report.memory import ArenaTensor, GraphMemory, MemoryReport

COLOURS = 8
HEIGHT = 1000
"""Units of a picture's height, whatever it is stretched to."""


def memory_page(report: MemoryReport) -> str:
    """The whole document."""
    names = ", ".join(graph.name for graph in report.graphs)
    weights = f"weights of {bytes_text(report.weights_bytes)} beside the arenas"
    facts = f"context {report.context}, made for {report.device}, {weights}"
    sections = "".join(_section(number, graph) for number, graph in enumerate(report.graphs))
    return document(f"Memory report: {names}", f"Memory of {names}", facts, sections, _EXPLAINED)


_EXPLAINED = (
    "A tensor between operations lies in an arena from the operation that writes it to the last one that reads it; one "
    "that others need to be whole for takes its bytes then. The bound is the most that is held at once, each tensor "
    "aligned: no plan in as many arenas is smaller. Inputs, outputs and weights have memory of their own."
)


def _section(number: int, graph: GraphMemory) -> str:
    """A graph."""
    head = f'<section class="memory"><h2>{text(graph.name)}</h2>'
    if not graph.tensors:
        return f"{head}<p>No tensor lies between operations.</p></section>"
    several = len(graph.arena_bytes) > 1
    maps = "".join(
        f'<div class="card">{figure(f"Arena {arena}" if several else "Arena", _map(number, graph, arena), _HOW)}</div>'
        for arena in range(len(graph.arena_bytes))
    )
    held = f'<div class="card">{figure("Bytes held while an operation runs", _held(graph))}</div>'
    tiles = f'<dl class="tiles">{_tiles(graph)}</dl>'
    return f"{head}{tiles}{maps}{held}{_tensors(number, graph)}</section>"


_HOW = "Operations from left to right, bytes upwards; a tensor leads to its row in the table."


def _tiles(graph: GraphMemory) -> str:
    arenas = counted(len(graph.arena_bytes), "arena")
    sizes = ", ".join(bytes_text(nbytes) for nbytes in graph.arena_bytes) if len(graph.arena_bytes) > 1 else ""
    alone = sum(tensor.nbytes for tensor in graph.tensors)
    return (
        tile(arenas.capitalize(), bytes_text(graph.total_bytes), sizes or f"{graph.total_bytes:,} bytes")
        + tile("Bound", bytes_text(graph.bound_bytes), f"{graph.bound_bytes:,} bytes")
        + tile("Arenas by bound", f"{graph.ratio:.3f}×", "1 is as small as can be")
        + tile("Tensors", f"{len(graph.tensors):,}", f"{bytes_text(alone)} if none shared memory")
    )


def _map(number: int, graph: GraphMemory, arena: int) -> str:
    """Where each tensor of an arena lies, and when."""
    total = graph.arena_bytes[arena]
    parts = []
    for place, tensor in enumerate(graph.tensors):
        if tensor.arena == arena:
            top, height = HEIGHT * (1 - tensor.end / total), HEIGHT * tensor.nbytes / total
            box = f'x="{tensor.first_use}" y="{top:.2f}" width="{tensor.last_use - tensor.first_use + 1}"'
            parts.append(
                f'<a href="#{_anchor(number, place)}"><rect class="o{place % COLOURS}" {box} height="{height:.2f}">'
                f"<title>{text(_said(graph, tensor))}</title></rect></a>"
            )
    if len(graph.arena_bytes) == 1:
        parts.append(_line(graph, total))
    return _chart("map", f"{graph.name}: tensors of arena {arena} by operation and offset", graph, total, parts)


def _held(graph: GraphMemory) -> str:
    """How much is held while each operation runs."""
    total = graph.total_bytes
    steps = "".join(
        f"V{HEIGHT * (1 - alive / total):.2f}H{place}" for place, alive in enumerate(graph.alive_bytes, start=1)
    )
    parts = [f'<path class="held" d="M0 {HEIGHT}{steps}V{HEIGHT}Z"/>', _line(graph, total)]
    return _chart("load", f"{graph.name}: bytes held by operation", graph, total, parts)


def _line(graph: GraphMemory, total: int) -> str:
    """The bound across a picture."""
    height = HEIGHT * (1 - graph.bound_bytes / total)
    return f'<path class="level" d="M0 {height:.2f}H{len(graph.operations)}"><title>bound</title></path>'


def _chart(kind: str, title: str, graph: GraphMemory, total: int, parts: Iterable[str]) -> str:
    """A picture with its scales: bytes at the left, operations below."""
    count = len(graph.operations)
    up, across = Scale(0, total, 0, 100), Scale(0, count, 0, 100)
    heights = _ticks("bottom", [(up(tick), bytes_text(tick)) for tick in up.ticks(4)])
    starts = [(across(tick), f"{tick:g}") for tick in across.ticks(5) if tick == int(tick) and tick < count]
    return (
        f'<div class="chart {kind}"><div class="heights">{heights}</div>'
        f'<svg viewBox="0 0 {count} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{text(title)}">'
        f'{"".join(parts)}</svg><div class="starts">{_ticks("left", starts)}</div></div>'
    )


def _ticks(side: str, ticks: Sequence[tuple[float, str]]) -> str:
    """Words along a scale, each at a share of 100 from a side."""
    return "".join(f'<span style="{side}:{at:g}%">{text(words)}</span>' for at, words in ticks)


def _tensors(number: int, graph: GraphMemory) -> str:
    """The table of a graph's tensors."""
    columns = [
        Column("Written by"),
        Column("Bytes", "number"),
        Column("Offset", "number", wide=True),
        Column("From", "number", hint="the operation that writes it"),
        Column("To", "number", hint="the last operation that reads it"),
        Column("Last read by", "message", wide=True),
    ]
    several = len(graph.arena_bytes) > 1
    if several:
        columns.insert(2, Column("Arena", "number", wide=True))
    rows = []
    for place, tensor in enumerate(graph.tensors):
        mark = f'<i class="key o{place % COLOURS}"></i>'
        name = f'<span class="tensor" id="{_anchor(number, place)}">{mark}{text(tensor.name)}</span>'
        row = [Cell(name, tensor.name), Cell(bytes_text(tensor.nbytes), tensor.nbytes)]
        row += [Cell(str(tensor.arena), tensor.arena)] if several else []
        row += [Cell(f"{tensor.offset:,}", tensor.offset)]
        row += [Cell(str(use), use) for use in (tensor.first_use, tensor.last_use)]
        last = graph.operations[tensor.last_use]
        rows.append([*row, Cell(text(last), last)])
    return f'<h3 class="part">Tensors</h3><div class="card">{table(columns, rows)}</div>'


def _anchor(number: int, place: int) -> str:
    """Where the row of a graph's tensor is."""
    return f"graph{number}-tensor{place}"


def _said(graph: GraphMemory, tensor: ArenaTensor) -> str:
    """A tensor in a line."""
    uses = f"from operation {tensor.first_use} to {tensor.last_use} ({graph.operations[tensor.last_use]})"
    return f"{tensor.name}: {bytes_text(tensor.nbytes)} at {tensor.offset:,}, {uses}"
