"""Turn a detector's text map into boxes around lines: find regions above a threshold, then the smallest rectangle
around each.

The rectangles are enlarged, since the map shows only the inside of lines. After Liao et al., "Real-time Scene Text
Detection with Differentiable Binarization" (2020), arXiv:1911.08947.

Boxes are float arrays [4, 2] of x and y, clockwise from the upper left corner.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Bools = npt.NDArray[np.bool_]

THRESHOLD = 0.3
LEAST_SCORE = 0.5
LARGER = 1.6
"""By how much a box grows: its area times this by its circumference, on each side."""
LEAST_SIDE = 3.0


def boxes_of(probabilities: Floats) -> list[Floats]:
    """The boxes of a map [height, width] in pixels of the map, in the order in which people read."""
    text = probabilities > THRESHOLD
    text[1:] |= text[:-1].copy()  # neighbours of text are text, as the detector was trained
    text[:, 1:] |= text[:, :-1].copy()
    found = []
    for points in _regions(text):
        corners = _smallest_rectangle(points)
        if min(_sides(corners)) < LEAST_SIDE or _score(probabilities, corners) < LEAST_SCORE:
            continue
        found.append(_ordered(_grown(corners)))
    return _in_reading_order(found)


def _regions(text: Bools) -> Iterator[Floats]:
    """The ends of each region's rows, [points, 2] of x and y. Pixels are neighbours also at their corners."""
    parents: list[int] = []
    runs: list[tuple[int, int, int]] = []  # row, first column, column behind the last

    def root(run: int) -> int:
        while parents[run] != run:
            parents[run] = parents[parents[run]]
            run = parents[run]
        return run

    above: list[int] = []
    for y, row in enumerate(text):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]])))
        here = []
        for first, end in edges.reshape(-1, 2).tolist():
            run = len(runs)
            runs.append((y, first, end))
            parents.append(run)
            here.append(run)
            for other in above:
                if runs[other][1] <= end and runs[other][2] >= first:
                    parents[root(other)] = root(run)
        above = here
    points: dict[int, list[tuple[int, int]]] = {}
    for run, (y, first, end) in enumerate(runs):
        points.setdefault(root(run), []).extend([(first, y), (end - 1, y)])
    for ends in points.values():
        yield np.array(ends, np.float64)


def _hull(points: Floats) -> Floats:
    """The convex hull by Andrew's monotone chain."""
    ordered = sorted(set(map(tuple, points.tolist())))

    def half(side: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        chain: list[tuple[float, ...]] = []
        for x, y in side:
            while len(chain) > 1:
                (ax, ay), (bx, by) = chain[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                chain.pop()
            chain.append((x, y))
        return chain[:-1]

    return np.array(half(ordered) + half(ordered[::-1]) or ordered)


def _smallest_rectangle(points: Floats) -> Floats:
    """The corners of the rectangle of least area around points: it lies along an edge of their hull."""
    hull = _hull(points)
    best, least = np.zeros((4, 2)), math.inf
    for edge in np.roll(hull, -1, axis=0) - hull if len(hull) > 1 else [np.array([1.0, 0.0])]:
        along = edge / np.linalg.norm(edge)
        axes = np.stack([along, [-along[1], along[0]]])
        turned = hull @ axes.T
        low, high = turned.min(axis=0), turned.max(axis=0)
        if (area := float(np.prod(high - low))) < least:
            corners = np.array([low, [high[0], low[1]], high, [low[0], high[1]]])
            best, least = corners @ axes, area
    return best


def _sides(corners: Floats) -> tuple[float, float]:
    return float(np.linalg.norm(corners[1] - corners[0])), float(np.linalg.norm(corners[3] - corners[0]))


def _score(probabilities: Floats, corners: Floats) -> float:
    """The mean of the map inside of a rectangle."""
    height, width = probabilities.shape
    left, top = np.clip(np.floor(corners.min(axis=0)).astype(int), 0, [width - 1, height - 1])
    right, bottom = np.clip(np.ceil(corners.max(axis=0)).astype(int), 0, [width - 1, height - 1])
    y, x = np.mgrid[top : bottom + 1, left : right + 1]
    edges = np.roll(corners, -1, axis=0) - corners
    sides = [dx * (y - cy) - dy * (x - cx) for (cx, cy), (dx, dy) in zip(corners, edges, strict=True)]
    inside = np.all([side >= -0.5 * np.abs(edges).max() for side in sides], axis=0)
    return float(probabilities[top : bottom + 1, left : right + 1][inside].mean()) if inside.any() else 0.0


def _grown(corners: Floats) -> Floats:
    """The rectangle with each side moved out."""
    along, down = corners[1] - corners[0], corners[3] - corners[0]
    across, deep = _sides(corners)
    distance = across * deep * LARGER / (2 * (across + deep))
    right, below = along / across * distance, down / deep * distance
    outwards: Floats = np.array([-right - below, right - below, right + below, -right + below])
    return np.asarray(corners + outwards)


def _ordered(corners: Floats) -> Floats:
    """Clockwise from the upper left."""
    by_x = corners[np.argsort(corners[:, 0], kind="stable")]
    left, right = (side[np.argsort(side[:, 1], kind="stable")] for side in (by_x[:2], by_x[2:]))
    return np.stack([left[0], right[0], right[1], left[1]])


def _in_reading_order(boxes: list[Floats]) -> list[Floats]:
    """From top to bottom; what begins at about the same height is a line, from left to right."""
    ordered = sorted(boxes, key=lambda box: (box[0, 1], box[0, 0]))
    for last in range(1, len(ordered)):
        for place in range(last, 0, -1):
            before, box = ordered[place - 1], ordered[place]
            near = abs(box[0, 1] - before[0, 1]) < 0.5 * _sides(before)[1]
            if not near or box[0, 0] >= before[0, 0]:
                break
            ordered[place - 1], ordered[place] = box, before
    return ordered
