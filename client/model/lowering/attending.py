"""Describe two products and the softmax between them as one attention.

Each of them has axes of its own, joined where its tensors allow it. All know where an axis lies in the matrix of
scores, which one writes and the next ones read. So their axes are cut at the same places there, and are the same then.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from gputune.client.model.lowering.contraction import Axis, joined_axes
from gputune.kernels.chain import Chain
from gputune.kernels.ops.attention import AttentionPlaces, AttentionProblem
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem, Places
from gputune.kernels.ops.softmax import SoftmaxProblem

SCORES, QUERY, KEY, VALUE, OUTPUT, OPERANDS = 0, 1, 2, 3, 4, 5
"""The places of tensors among the steps of an axis; operands of the scores are behind all others."""

MOST_NUMBERS = 512
"""Numbers of a query or of a value: more of them leave no room for rows in local memory."""


def fused_attention(
    scores: MatMulProblem, masks: ElementwiseProblem | None, softmax: SoftmaxProblem, values: MatMulProblem
) -> AttentionProblem | None:
    """Return the problem that computes `values` of the softmax of `scores`, with `masks` in front of that; None if no
    kernel can."""
    first, second = scores.places, values.places
    if first is None or second is None or not _fits(scores, first, values, second):
        return None
    chain = scores.epilogue if masks is None else _behind(scores.epilogue, masks.chain)
    if chain.has_domain or chain.discontinuous or chain.of_whole or {scores.dtype} != {softmax.dtype, values.dtype}:
        return None
    if softmax.log or softmax.inner > 1 or softmax.axis != scores.n:
        return None
    parts = [list(_axes_of_values(values, second)), list(_axes_of_scores(scores, first))]
    across = [steps[-1] for steps in first.operand_steps]
    if masks is not None:
        if masks.shape[-1] != scores.n or masks.input_shape != masks.shape or masks.dtype != scores.dtype:
            return None
        parts.append(list(_axes_of_masks(masks)))
        across += [int(shape[-1:] == masks.shape[-1:]) for shape in masks.operand_shapes]
    axes = _common(parts)
    if axes is None:
        return None
    axes = list(joined_axes(axes, SCORES))
    own = [axis for axis in axes if not axis.steps[KEY] and not axis.steps[VALUE]]
    rows = max(own, key=lambda axis: axis.size, default=Axis(1, (0,) * (OPERANDS + chain.operands)))
    order = [*(axis for axis in axes if axis is not rows), rows]

    def steps(tensor: int, *last: int) -> tuple[int, ...]:
        return (*(axis.steps[tensor] for axis in order), *last)

    places = AttentionPlaces(
        batch=tuple(axis.size for axis in order[:-1]),
        query_steps=steps(QUERY, first.a_steps[-1]),
        key_steps=(*steps(KEY)[:-1], first.b_steps[-1], first.b_steps[-2]),
        value_steps=(*steps(VALUE)[:-1], *second.b_steps[-2:]),
        output_steps=steps(OUTPUT, second.output_steps[-1]),
        elements=(*first.elements, second.elements[1]),
        operand_steps=tuple(steps(OPERANDS + k, step) for k, step in enumerate(across)),
        starts=(*first.starts, second.starts[1]),
    )
    return AttentionProblem(rows.size, scores.n, scores.k, values.n, places, chain, softmax.masked, scores.dtype)


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


def _axes_of_masks(masks: ElementwiseProblem) -> Iterator[Axis]:
    """Yield all axes but that of the keys, by their steps in scores and operands."""
    shape = masks.shape
    tensors = [(1,) * (len(shape) - len(own)) + own for own in (shape, *masks.operand_shapes)]
    steps = [[*accumulate(own[:0:-1], lambda a, b: a * b, initial=1)][::-1] for own in tensors]
    for k, size in enumerate(shape[:-1]):
        yield Axis(size, tuple(step[k] if own[k] > 1 else 0 for own, step in zip(tensors, steps, strict=True)))


def _common(parts: Sequence[Sequence[Axis]]) -> list[Axis] | None:
    """Return the axes by their steps in all tensors: those of values are first, and operands last. None where they
    are not the same axes of the scores."""
    long = [[axis for axis in axes if axis.size > 1] for axes in parts]
    cuts = {axis.steps[SCORES] for axes in long for axis in axes}
    try:
        values, scores, *masks = ([*_cut(axes, cuts)] for axes in long)
    except ValueError:
        return None
    found = [(axis.size, axis.steps[SCORES]) for axis in values]
    if any([(axis.size, axis.steps[SCORES]) for axis in axes] != found for axes in (scores, *masks)):
        return None
    joined = []
    for value, score, *mask in zip(values, scores, *masks, strict=True):
        own, query, key, *operands = score.steps
        behind = (step for axis in mask for step in axis.steps[1:])
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
