"""List attentions with difficult shapes, steps and masks, and those of well-known networks."""

from gputune.kernels.chain import EMPTY, Chain, Step
from gputune.kernels.indexing.steps import Steps
from gputune.kernels.ops.attention import AttentionPlaces, AttentionProblem

SCALED = Chain((Step("mul", (0.125,)),))
MASKED = Chain((Step("mul", (0.5,)), Step("add", operand=0)))
CAPPED = Chain((Step("mul", (0.02,)), Step("tanh"), Step("mul", (50.0,)), Step("add", operand=0)))
TWICE = Chain((Step("add", operand=0), Step("add", operand=1)))


def heads(
    heads: int,
    rows: int,
    keys: int,
    depth: int,
    columns: int = 0,
    scores: Chain = SCALED,
    operand_steps: tuple[Steps, ...] = (),
    batch: int = 1,
    masked: bool = False,
    zeroed_steps: Steps | None = None,
    hidden_steps: Steps | None = None,
    shown: bool = False,
) -> AttentionProblem:
    """Return an attention whose tensors lie as [batch, row, head, number]."""
    columns = columns or depth
    queries, lines, values = heads * depth, heads * depth, heads * columns
    places = AttentionPlaces(
        (batch, heads),
        (rows * queries, depth, queries, 1),
        (keys * lines, depth, lines, 1),
        (keys * values, columns, values, 1),
        (rows * values, columns, values, 1),
        (batch * rows * queries, batch * keys * lines, batch * keys * values),
        operand_steps,
        zeroed_steps=zeroed_steps,
        hidden_steps=hidden_steps,
    )
    return AttentionProblem(rows, keys, depth, columns, places, scores, masked, shown)


def grouped(key_heads: int, members: int, rows: int, keys: int, depth: int) -> AttentionProblem:
    """Return an attention of which `members` query heads share each key head, all as [head, row, number]."""
    places = AttentionPlaces(
        (key_heads, members),
        (members * rows * depth, rows * depth, depth, 1),
        (keys * depth, 0, depth, 1),
        (keys * depth, 0, depth, 1),
        (members * depth, depth, key_heads * members * depth, 1),
        (key_heads * members * rows * depth, key_heads * keys * depth, key_heads * keys * depth),
        ((0, 0, keys, 1),),
    )
    return AttentionProblem(rows, keys, depth, depth, places, MASKED)


def thirds(heads: int, tokens: int, depth: int) -> AttentionProblem:
    """Return an attention of thirds of one tensor [token, third, head, number]."""
    whole = heads * depth
    steps = (depth, 3 * whole, 1)
    elements, starts = (3 * whole * tokens,) * 3, (0, whole, 2 * whole)
    places = AttentionPlaces((heads,), steps, steps, steps, (depth, whole, 1), elements, (), starts)
    return AttentionProblem(tokens, tokens, depth, depth, places, SCALED)


def turned(tokens: int, depth: int) -> AttentionProblem:
    """Return an attention whose queries and keys lie number by number, as states may."""
    steps, size = (depth * tokens, 1, tokens), 2 * depth * tokens
    rows = (depth * tokens, depth, 1)
    places = AttentionPlaces((2,), steps, steps, rows, rows, (size,) * 3)
    return AttentionProblem(tokens, tokens, depth, depth, places)


ATTENTIONS = {
    "one": heads(1, 1, 1, 1, scores=EMPTY),
    "one-key": heads(2, 5, 1, 8),
    "one-query": heads(3, 1, 37, 16),
    "primes": heads(2, 7, 13, 5, 3, EMPTY),
    "mask-of-keys": heads(2, 10, 18, 16, 24, MASKED, ((18, 0, 0, 1),), batch=2),
    "mask-of-queries": heads(2, 17, 17, 40, 40, MASKED, ((0, 0, 17, 1),), batch=2),
    "mask-of-heads-capped": heads(2, 9, 33, 8, 8, CAPPED, ((0, 1, 0, 0),), batch=2),
    "two-masks": heads(2, 6, 21, 20, 16, TWICE, ((0, 0, 21, 1), (0, 126, 21, 1)), masked=True),
    "grouped": grouped(2, 3, 5, 34, 16),
    "thirds": thirds(2, 19, 12),
    "turned": turned(21, 18),
    "many-keys": heads(1, 3, 150, 16, 32),
    "hidden-keys": heads(2, 9, 21, 12, batch=2, hidden_steps=(21, 0, 0, 1), shown=True),
    "hidden-scores": heads(2, 5, 40, 8, scores=MASKED, operand_steps=((0, 0, 0, 1),), hidden_steps=(0, 0, 40, 1)),
    "zeroed-rows": heads(2, 13, 20, 12, 20, batch=2, zeroed_steps=(13, 0, 1)),
}

REAL = {
    "vit": thirds(6, 197, 64),
    "minilm": heads(12, 128, 128, 32, scores=MASKED, operand_steps=((128, 0, 0, 1),)),
    "decoder": heads(32, 1, 512, 128),
    "long": heads(8, 2048, 2048, 64),
}
