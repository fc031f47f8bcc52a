"""Write the page of a memory report: the arenas of each graph as pictures, and their tensors as a table."""

from __future__ import annotations

from gputune.client.html.document import document
from gputune.client.html.markup import Cell, Column, figure, table, text, tile
from gputune.client.html.scales import bytes_text, counted
from gputune.client.html.steps import HEIGHT, bound_line, held_chart, step_chart
from gputune.client.report.html.style import REPORT_STYLE
from gputune.client.report.memory import ArenaTensor, GraphMemory, MemoryReport

COLOURS = 8


def memory_page(report: MemoryReport) -> str:
    """Return the whole document."""
    names = ", ".join(graph.name for graph in report.graphs)
    weights = f"{bytes_text(report.weights_bytes)} of weights outside the arenas"
    facts = f"context {report.context}, made for {report.device}, {weights}"
    sections = "".join(_section(number, graph) for number, graph in enumerate(report.graphs))
    return document(f"Memory report: {names}", f"Memory of {names}", facts, sections, _EXPLAINED, style=REPORT_STYLE)


_EXPLAINED = (
    "A tensor between operations lies in an arena from the operation that writes it to the last operation that reads "
    "it. Scratch memory of an operation is held while that operation runs. The bound is the most that is held at once, "
    "with each tensor aligned: no plan with as many arenas is smaller. Inputs, outputs and weights have memory of "
    "their own."
)


def _section(number: int, graph: GraphMemory) -> str:
    """Return the section of a graph."""
    head = f'<section class="memory"><h2>{text(graph.name)}</h2>'
    if not graph.tensors:
        tiles = f'<dl class="tiles">{_state_tile(graph)}</dl>' if graph.state_bytes else ""
        return f"{head}{tiles}<p>This graph has no tensors between operations.</p></section>"
    several = len(graph.arena_bytes) > 1
    maps = "".join(
        f'<div class="card">{figure(f"Arena {arena}" if several else "Arena", _map(number, graph, arena), _HOW)}</div>'
        for arena in range(len(graph.arena_bytes))
    )
    held = held_chart(f"{graph.name}: bytes held by operation", graph.alive_bytes, graph.total_bytes, graph.bound_bytes)
    alive = f'<div class="card">{figure(_HELD, held)}</div>'
    tiles = f'<dl class="tiles">{_tiles(graph)}</dl>'
    return f"{head}{tiles}{maps}{alive}{_tensors(number, graph)}</section>"


_HELD = "Bytes held while an operation runs"
_HOW = "Operations run from left to right, bytes go upwards. Select a tensor to see its row in the table."


def _tiles(graph: GraphMemory) -> str:
    arenas = counted(len(graph.arena_bytes), "arena")
    sizes = ", ".join(bytes_text(nbytes) for nbytes in graph.arena_bytes) if len(graph.arena_bytes) > 1 else ""
    alone = sum(tensor.nbytes for tensor in graph.tensors)
    return (
        tile(arenas.capitalize(), bytes_text(graph.total_bytes), sizes or f"{graph.total_bytes:,} bytes")
        + tile("Bound", bytes_text(graph.bound_bytes), f"{graph.bound_bytes:,} bytes")
        + tile("Arenas / bound", f"{graph.ratio:.3f}×", "1 is the smallest possible")
        + tile("Tensors", f"{len(graph.tensors):,}", f"{bytes_text(alone)} if none shared memory")
        + _state_tile(graph)
    )


def _state_tile(graph: GraphMemory) -> str:
    """Return the memory of a state, beside the arenas; nothing if the graph remembers nothing."""
    nbytes = graph.state_bytes
    return tile("Each state", bytes_text(nbytes), f"{nbytes:,} bytes beside the arenas") if nbytes else ""


def _map(number: int, graph: GraphMemory, arena: int) -> str:
    """Draw where each tensor of an arena lies, and when."""
    total, count = graph.arena_bytes[arena], len(graph.operations)
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
        parts.append(bound_line(graph.bound_bytes, total, count))
    title = f"{graph.name}: tensors of arena {arena} by operation and offset"
    return step_chart("map", title, count, total, parts)


def _tensors(number: int, graph: GraphMemory) -> str:
    """Return the table of a graph's tensors."""
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
    """Return where the row of a graph's tensor is."""
    return f"graph{number}-tensor{place}"


def _said(graph: GraphMemory, tensor: ArenaTensor) -> str:
    """Describe a tensor in a line."""
    uses = f"from operation {tensor.first_use} to {tensor.last_use} ({graph.operations[tensor.last_use]})"
    return f"{tensor.name}: {bytes_text(tensor.nbytes)} at {tensor.offset:,}, {uses}"
