"""Say what the page of a memory report holds: the arenas of each graph as drawings, and their tensors as a table."""

from __future__ import annotations

from gputune.client.pages.blocks import Block, Cell, Column, card, figure, group, key, table, text, tiles
from gputune.client.pages.document import page
from gputune.client.pages.drawing import box, drawing, held, level, path, scale_across, scale_up, ticks
from gputune.client.pages.scales import bytes_text, counted
from gputune.client.report.memory import ArenaTensor, GraphMemory, MemoryReport

COLOURS = 8


def memory_page(report: MemoryReport) -> str:
    """Return the whole document."""
    names = ", ".join(graph.name for graph in report.graphs)
    weights = f"{bytes_text(report.weights_bytes)} of weights outside the arenas"
    facts = f"context {report.context}, made for {report.device}, {weights}"
    return page(f"Memory report: {names}", f"Memory of {names}", facts, memory_sections(report), _EXPLAINED)


def memory_sections(report: MemoryReport) -> list[Block | None]:
    """Return all that the page holds."""
    return [_section(number, graph) for number, graph in enumerate(report.graphs)]


_EXPLAINED = (
    "A tensor between operations lies in an arena from the operation that writes it to the last operation that reads "
    "it. Scratch memory of an operation is held while that operation runs. The bound is the most that is held at once, "
    "with each tensor aligned: no plan with as many arenas is smaller. Inputs, outputs and weights have memory of "
    "their own."
)
_HELD = "Bytes held while an operation runs"
_HOW = "Operations run from left to right, bytes go upwards. Select a tensor to see its row in the table."


def _section(number: int, graph: GraphMemory) -> Block | None:
    """Return the section of a graph."""
    if not graph.tensors:
        own = [tiles(*_state(graph))] if graph.state_bytes else []
        return group("section", *own, text("This graph has no tensors between operations."), title=graph.name)
    several = len(graph.arena_bytes) > 1
    maps = [
        card("", figure(f"Arena {arena}" if several else "Arena", _map(number, graph, arena), _HOW))
        for arena in range(len(graph.arena_bytes))
    ]
    label = f"{graph.name}: bytes held by operation"
    alive = held(label, graph.alive_bytes, graph.total_bytes, graph.bound_bytes, bytes_text)
    table_of = card("Tensors", _tensors(number, graph))
    return group("section", _tiles(graph), *maps, card("", figure(_HELD, alive)), table_of, title=graph.name)


def _tiles(graph: GraphMemory) -> Block:
    arenas = counted(len(graph.arena_bytes), "arena")
    sizes = ", ".join(bytes_text(nbytes) for nbytes in graph.arena_bytes) if len(graph.arena_bytes) > 1 else ""
    alone = sum(tensor.nbytes for tensor in graph.tensors)
    return tiles(
        (arenas.capitalize(), bytes_text(graph.total_bytes), sizes or f"{graph.total_bytes:,} bytes"),
        ("Bound", bytes_text(graph.bound_bytes), f"{graph.bound_bytes:,} bytes"),
        ("Arenas / bound", f"{graph.ratio:.3f}×", "1 is the smallest possible"),
        ("Tensors", f"{len(graph.tensors):,}", f"{bytes_text(alone)} if none shared memory"),
        *_state(graph),
    )


def _state(graph: GraphMemory) -> list[tuple[str, str, str]]:
    """Return the memory of a state, beside the arenas; nothing if the graph remembers nothing."""
    nbytes = graph.state_bytes
    return [("Each state", bytes_text(nbytes), f"{nbytes:,} bytes beside the arenas")] if nbytes else []


def _map(number: int, graph: GraphMemory, arena: int) -> Block:
    """Draw where each tensor of an arena lies, and when."""
    total, count = graph.arena_bytes[arena], len(graph.operations)
    across, up = scale_across(0, count), scale_up(0, total)
    paths = []
    for place, one in enumerate(graph.tensors):
        if one.arena == arena:
            around = box(across(one.first_use), up(one.end), across(one.last_use + 1), up(one.offset))
            paths.append(path(around, f"o{place % COLOURS} box", _said(graph, one), _anchor(number, place)))
    if len(graph.arena_bytes) == 1:
        paths.append(level(up(graph.bound_bytes), "bound"))
    label = f"{graph.name}: tensors of arena {arena} by operation and offset"
    starts = ticks(across, "{:g}".format, 5, whole=True)
    return drawing(label, paths, up=ticks(up, bytes_text), across=starts, height=420)


def _tensors(number: int, graph: GraphMemory) -> Block:
    """Return the table of a graph's tensors."""
    several = len(graph.arena_bytes) > 1
    columns = [
        Column("Written by", lambda row: Cell([key(f"o{row[0] % COLOURS}"), row[1].name], row[1].name)),
        Column("Bytes", lambda row: row[1].nbytes, "bytes"),
        *([Column("Arena", lambda row: row[1].arena, "count", True)] if several else []),
        Column("Offset", lambda row: row[1].offset, "count", True),
        Column("From", lambda row: row[1].first_use, "count", hint="the operation that writes it"),
        Column("To", lambda row: row[1].last_use, "count", hint="the last operation that reads it"),
        Column("Last read by", lambda row: graph.operations[row[1].last_use], wide=True),
    ]
    return table(columns, enumerate(graph.tensors), ids=lambda row: _anchor(number, row[0]))


def _anchor(number: int, place: int) -> str:
    """Return where the row of a graph's tensor is."""
    return f"graph{number}-tensor{place}"


def _said(graph: GraphMemory, tensor: ArenaTensor) -> str:
    """Describe a tensor in a line."""
    uses = f"from operation {tensor.first_use} to {tensor.last_use} ({graph.operations[tensor.last_use]})"
    return f"{tensor.name}: {bytes_text(tensor.nbytes)} at {tensor.offset:,}, {uses}"
