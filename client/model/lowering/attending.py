"""Describe two products and the softmax between them as one attention.

Each of them has axes of its own, joined where its tensors allow it. All know where an axis lies in the matrix of
scores, which one writes and the next ones read. So their axes are cut at the same places there, and are the same then.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul

from gputune.client.model.lowering.contraction import Axis, joined_axes
from gputune.kernels.chain import Chain
from gputune.kernels.indexing.steps import Places
from gputune.kernels.ops.attention import AttentionPlaces, AttentionProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.ops.typed import TypedProblem

SCORES, QUERY, KEY, VALUE, OUTPUT, OPERANDS = 0, 1, 2, 3, 4, 5
"""The places of tensors among the steps of an axis; operands of the scores are behind all others."""

MOST_NUMBERS = 512
"""Numbers of a query or of a value: more of them leave no room for rows in local memory."""


@dataclass(frozen=True)
class Parts:
    """The problems of an attention. masks: what is added to scores by a kernel of its own; hidden: what puts a number
    in the place of scores behind that, and `shown`: whether its condition says which scores stay; zeroed: what sets
    rows of shares to zero."""

    scores: MatMulProblem
    softmax: SoftmaxProblem
    values: MatMulProblem
    masks: ElementwiseProblem | None = None
    hidden: TypedProblem | None = None
    shown: bool = False
    zeroed: TypedProblem | None = None


def fused_attention(parts: Parts) -> AttentionProblem | None:
    """Return the problem that computes `values` of the softmax of `scores`; None if no kernel can."""
    scores, softmax, values, masks, zeroed = parts.scores, parts.softmax, parts.values, parts.masks, parts.zeroed
    hidden = parts.hidden
    first, second = scores.places, values.places
    if first is None or second is None or not _fits(scores, first, values, second):
        return None
    chain = scores.epilogue if masks is None else _behind(scores.epilogue, masks.chain)
    if chain.has_domain or chain.discontinuous or chain.of_whole or {scores.dtype} != {softmax.dtype, values.dtype}:
        return None
    if softmax.log or softmax.inner > 1 or softmax.axis != scores.n:
        return None
    axes = [list(_axes_of_values(values, second)), list(_axes_of_scores(scores, first))]
    across = [steps[-1] for steps in first.operand_steps]
    if masks is not None:
        if masks.shape[-1] != scores.n or masks.input_shape != masks.shape or masks.dtype != scores.dtype:
            return None
        axes.append(list(_broadcast(masks.shape, masks.operand_shapes)))
        across += [int(shape[-1:] == masks.shape[-1:]) for shape in masks.operand_shapes]
    if hidden is not None:
        across.append(int(hidden.input_shapes[0][-1:] == hidden.shape[-1:]))
        if hidden.shape[-1] != scores.n or hidden.input_shapes[1 if parts.shown else 2] != hidden.shape:
            return None
        axes.append(list(_broadcast(hidden.shape, hidden.input_shapes[:1])))
    if zeroed is not None:
        rows = zeroed.input_shapes[0]
        if zeroed.shape[-1] != scores.n or zeroed.input_shapes[2] != zeroed.shape or rows[-1:] not in ((), (1,)):
            return None
        axes.append(list(_broadcast(zeroed.shape, (rows,))))
    found = _common(axes)
    if found is None:
        return None
    return _problem(parts, first, second, list(joined_axes(found, SCORES)), chain, across)


def _problem(
    parts: Parts, first: Places, second: Places, axes: Sequence[Axis], chain: Chain, across: Sequence[int]
) -> AttentionProblem:
    """Return the problem with these axes, of which the longest that neither keys nor values have is the rows. across:
    the steps of operands along keys, and behind them of what hides scores."""
    own = [axis for axis in axes if not axis.steps[KEY] and not axis.steps[VALUE]]
    none = (0,) * (OPERANDS + len(across) + (parts.zeroed is not None))
    rows = max(own, key=lambda axis: axis.size, default=Axis(1, none))
    order = [*(axis for axis in axes if axis is not rows), rows]

    def steps(tensor: int, *last: int) -> tuple[int, ...]:
        return (*(axis.steps[tensor] for axis in order), *last)

    beside = [steps(OPERANDS + k, step) for k, step in enumerate(across)]
    places = AttentionPlaces(
        batch=tuple(axis.size for axis in order[:-1]),
        query_steps=steps(QUERY, first.a_steps[-1]),
        key_steps=(*steps(KEY)[:-1], first.b_steps[-1], first.b_steps[-2]),
        value_steps=(*steps(VALUE)[:-1], *second.b_steps[-2:]),
        output_steps=steps(OUTPUT, second.output_steps[-1]),
        elements=(*first.elements, second.elements[1]),
        operand_steps=tuple(beside[: chain.operands]),
        starts=(*first.starts, second.starts[1]),
        zeroed_steps=None if parts.zeroed is None else steps(-1),
        hidden_steps=None if parts.hidden is None else beside[-1],
    )
    scores, values, masked = parts.scores, parts.values, parts.softmax.masked
    return AttentionProblem(rows.size, scores.n, scores.k, values.n, places, chain, masked, parts.shown, scores.dtype)


def _fits(scores: MatMulProblem, first: Places, values: MatMulProblem, second: Places) -> bool:
    """Return whether the second product reads what the first one writes, key by key, and writes nothing but sums of
    values that lie side by side."""
    keys = scores.n in (1, values.k) and (scores.n == 1 or (first.output_steps[-1], second.a_steps[-1]) == (1, 1))
    columns = values.n == 1 or (second.b_steps[-1], second.output_steps[-1]) == (1, 1)
    whole = scores.n == values.k and not second.starts[0] and not values.epilogue.steps
    return keys and columns and whole and max(scores.k, values.n) <= MOST_NUMBERS


def _behind(first: Chain, second: Chain) -> Chain:
    """Return both chains as one, with the operands of the second behind those of the first."""
    moved = (
        step if step.operand is None else replace(step, operand=step.operand + first.operands) for step in second.steps
    )
    return Chain((*first.steps, *moved))


def _axes_of_scores(scores: MatMulProblem, lies: Places) -> Iterator[Axis]:
    """Yield the batch and the rows, by their steps in scores, query, key and operands."""
    for k, size in enumerate(scores.shape[:-1]):
        key = lies.b_steps[k] if k < len(lies.batch) else 0
        yield Axis(size, (lies.output_steps[k], lies.a_steps[k], key, *(own[k] for own in lies.operand_steps)))


def _axes_of_values(values: MatMulProblem, lies: Places) -> Iterator[Axis]:
    """Yield the batch and the rows, by their steps in scores, value and output."""
    for k, size in enumerate(values.shape[:-1]):
        value = lies.b_steps[k] if k < len(lies.batch) else 0
        yield Axis(size, (lies.a_steps[k], value, lies.output_steps[k]))


def _broadcast(shape: tuple[int, ...], others: Sequence[tuple[int, ...]]) -> Iterator[Axis]:
    """Yield all axes of the scores but that of the keys, by their steps in scores and in tensors that broadcast."""
    tensors = [(1,) * (len(shape) - len(own)) + own for own in (shape, *others)]
    steps = [[*accumulate(own[:0:-1], mul, initial=1)][::-1] for own in tensors]
    for k, size in enumerate(shape[:-1]):
        yield Axis(size, tuple(step[k] if own[k] > 1 else 0 for own, step in zip(tensors, steps, strict=True)))


def _common(parts: Sequence[Sequence[Axis]]) -> list[Axis] | None:
    """Return the axes by their steps in all tensors: those of values are first, and those of scores second. None where
    they are not the same axes of the scores."""
    long = [[axis for axis in axes if axis.size > 1] for axes in parts]
    cuts = {axis.steps[SCORES] for axes in long for axis in axes}
    try:
        values, scores, *others = ([*_cut(axes, cuts)] for axes in long)
    except ValueError:
        return None
    found = [(axis.size, axis.steps[SCORES]) for axis in values]
    if any([(axis.size, axis.steps[SCORES]) for axis in axes] != found for axes in (scores, *others)):
        return None
    joined = []
    for value, score, *other in zip(values, scores, *others, strict=True):
        own, query, key, *operands = score.steps
        behind = (step for axis in other for step in axis.steps[1:])
        joined.append(Axis(score.size, (own, query, key, *value.steps[1:], *operands, *behind)))
    return joined


def _cut(axes: Sequence[Axis], cuts: Collection[int]) -> list[Axis]:
    """Return the axes in the order in which they lie in the scores, each cut where another one begins. Raises
    ValueError where that is not between two of its elements."""
    done: list[Axis] = []
    for axis in axes:
        size, own = axis.size, axis.steps[SCORES]
        for cut in sorted(cuts, reverse=True):
            if own < cut < own * size:
                inner, rest = divmod(cut, own)
                if rest or size % inner:
                    raise ValueError("axes overlap")
                done.append(Axis(size // inner, tuple(step * inner for step in axis.steps)))
                size = inner
        done.append(Axis(size, axis.steps))
    return sorted(done, key=lambda axis: axis.steps[SCORES], reverse=True)
