"""Draw the nodes of making.py that move elements: reshapes, slices, look-ups, resizes; see nodes.py."""

from math import prod
from typing import Any

import numpy as np

from tests.strategies.graphs.making import Array, Drawn, Maker


def transpose(make: Maker, x: str) -> Drawn:
    order = make.random.sample(range(make.rank(x)), make.rank(x))
    return Drawn("Transpose", [x], {"perm": order} if make.flip(0.8) else {})


def reshape(make: Maker, x: str) -> Drawn:
    shape = list(make.shape(x))
    if len(shape) > 1 and make.flip(0.6):
        axis = make.random.randrange(len(shape) - 1)
        shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    elif places := [axis for axis, size in enumerate(shape) if size % 2 == 0 and len(shape) < 5]:
        axis = make.random.choice(places)
        shape[axis : axis + 1] = [2, shape[axis] // 2]
    if shape and make.flip(0.3):
        shape[make.random.randrange(len(shape))] = -1
    kept = [axis for axis, size in enumerate(shape) if axis < make.rank(x) and size == make.shape(x)[axis]]
    if kept and make.flip(0.3):
        shape[make.random.choice(kept)] = 0
    return Drawn("Reshape", [x, make.integers(*shape)])


def flatten(make: Maker, x: str) -> Drawn:
    low = -make.rank(x) if make.opset >= 11 else 0
    return Drawn("Flatten", [x], {"axis": make.random.randint(low, make.rank(x))} if make.flip(0.8) else {})


def squeeze(make: Maker, x: str) -> Drawn | None:
    ones = [axis for axis, size in enumerate(make.shape(x)) if size == 1]
    if not ones or make.flip(0.2):
        return Drawn("Squeeze", [x]) if ones else None
    axes = make.random.sample(ones, make.random.randint(1, len(ones)))
    return Drawn("Squeeze", [x, make.integers(*axes)]) if make.opset >= 13 else Drawn("Squeeze", [x], {"axes": axes})


def unsqueeze(make: Maker, x: str) -> Drawn:
    rank = make.rank(x)
    axes = make.random.sample(range(rank + 1), make.random.choice((1, 1, 2)) if rank else 1)
    return (
        Drawn("Unsqueeze", [x, make.integers(*axes)]) if make.opset >= 13 else Drawn("Unsqueeze", [x], {"axes": axes})
    )


def slices(make: Maker, x: str) -> Drawn | None:
    if not make.rank(x):
        return None
    axes = make.random.sample(range(make.rank(x)), make.random.randint(1, make.rank(x)))
    steps = [make.random.choice((1, 1, 2, -1, -2)) if make.opset >= 10 else 1 for _ in axes]
    starts = [make.random.randint(-make.shape(x)[axis], make.shape(x)[axis] - 1) for axis in axes]
    ends = [make.random.choice((1000, -1)) if step > 0 else make.random.choice((-1000, 0)) for step in steps]
    if make.opset < 10:
        return Drawn("Slice", [x], {"starts": starts, "ends": ends, "axes": axes})
    return Drawn("Slice", [x, *(make.integers(*each) for each in (starts, ends, axes, steps))])


def split(make: Maker, x: str) -> Drawn | None:
    places = [axis for axis, size in enumerate(make.shape(x)) if size > 1]
    if not places:
        return None
    axis = make.random.choice(places)
    size = make.shape(x)[axis]
    first = make.random.randint(1, size - 1)
    if make.opset >= 18 and make.flip():
        return Drawn("Split", [x], {"axis": axis, "num_outputs": 2}, 2)
    if size % 2 == 0 and make.opset < 18 and make.flip():
        return Drawn("Split", [x], {"axis": axis}, 2)
    if make.opset >= 13:
        return Drawn("Split", [x, make.integers(first, size - first)], {"axis": axis - make.rank(x)}, 2)
    return Drawn("Split", [x], {"axis": axis, "split": [first, size - first]}, 2)


def concat(make: Maker, x: str) -> Drawn | None:
    if not make.rank(x):
        return None
    axis = make.random.randrange(make.rank(x))
    bare = np.delete(make.shape(x), axis).tolist()

    def fits(value: Array) -> bool:
        return value.ndim == make.rank(x) and np.delete(value.shape, axis).tolist() == bare

    others = [make.recent(fits=fits) for _ in range(make.random.choice((0, 1, 2)))]
    parts = [x, *others, *([make.weight(*make.shape(x))] if make.flip(0.3) else [])]
    make.random.shuffle(parts)
    return Drawn("Concat", parts, {"axis": axis if make.opset < 11 or make.flip() else axis - make.rank(x)})


def pad(make: Maker, x: str) -> Drawn | None:
    if not make.rank(x):
        return None
    mode = make.random.choice(("constant", "edge", "reflect", *(["wrap"] if make.opset >= 19 else [])))
    least = -1 if mode == "constant" else 0
    pads = [
        make.random.randint(least if size > 2 else 0, min(2, size - 1) if mode != "constant" else 2)
        for size in make.shape(x) * 2
    ]
    value = make.random.choice((0.0, 1.5, -2.0))
    if make.opset < 11:
        return Drawn("Pad", [x], {"pads": pads, "mode": mode, "value": value})
    values = [make.constant(np.float32(value))] if mode == "constant" and make.flip() else []
    if make.opset >= 18 and values and make.flip(0.4):
        rank, axes = make.rank(x), make.axes(x)
        chosen = [pads[axis % rank] for axis in axes] + [pads[axis % rank + rank] for axis in axes]
        return Drawn("Pad", [x, make.integers(*chosen), *values, make.integers(*axes)], {"mode": mode})
    return Drawn(
        "Pad", [x, make.integers(*pads), *values], {"mode": mode} if make.flip(0.7) or mode != "constant" else {}
    )


def expand(make: Maker, x: str) -> Drawn:
    sizes = [make.random.choice((1, 3)) if size == 1 else make.random.choice((1, size)) for size in make.shape(x)]
    return Drawn("Expand", [x, make.integers(*([2] if make.flip(0.2) and len(sizes) < 4 else []), *sizes)])


def tile(make: Maker, x: str) -> Drawn:
    return Drawn("Tile", [x, make.integers(*(make.random.choice((1, 1, 2, 3)) for _ in make.shape(x)))])


def gather(make: Maker, x: str) -> Drawn | None:
    if not make.rank(x):
        return None
    axis, low = make.random.randrange(make.rank(x)), 1 if make.opset >= 11 else 0
    size = make.shape(x)[axis]
    if make.flip(0.3) and make.opset >= 11:
        indices = make.numbers.integers(-size, size, make.shape(x))
        return Drawn("GatherElements", [x, make.constant(indices)], {"axis": axis})
    if make.flip(0.2) and make.opset >= 12:
        depth = make.random.randint(1, make.rank(x))
        rows = np.stack([make.numbers.integers(-each, each, (4,)) for each in make.shape(x)[:depth]], -1)
        return Drawn("GatherND", [x, make.constant(rows)])
    indices = make.numbers.integers(-size * low, size, make.random.choice([(2,), (1, 3), (), (4, 1)]))
    return Drawn("Gather", [x, make.constant(indices)], {"axis": axis})


def scatter(make: Maker, x: str) -> Drawn | None:
    shape = make.shape(x)
    if not shape or make.opset < 11:
        return None
    attributes = {"reduction": make.random.choice(("none", "add", "mul"))} if make.opset >= 16 and make.flip() else {}
    depth = make.random.randint(1, len(shape))
    if make.flip():
        rows = np.array(make.random.sample([*np.ndindex(*shape[:depth])], 1), np.int64)
        return Drawn("ScatterND", [x, make.constant(rows), make.weight(1, *shape[depth:])], attributes)
    axis = make.random.randrange(len(shape))
    indices = np.stack([make.numbers.permutation(shape[axis])[:1] for _ in range(prod(shape) // shape[axis])], -1)
    sizes = (*shape[:axis], 1, *shape[axis + 1 :])
    indices = np.moveaxis(indices.reshape(1, *np.delete(shape, axis)), 0, axis)
    return Drawn("ScatterElements", [x, make.constant(indices), make.weight(*sizes)], attributes | {"axis": axis})


def trilu(make: Maker, x: str) -> Drawn:
    shifts = [make.constant(np.int64(make.random.randint(-2, 2)))] if make.flip() else []
    return Drawn("Trilu", [x, *shifts], {"upper": 0} if make.flip() else {})


def blocks(make: Maker, x: str) -> Drawn:
    if make.flip():
        return Drawn("SpaceToDepth", [x], {"blocksize": make.random.choice((2, 3))})
    modes = {"mode": make.random.choice(("DCR", "CRD"))} if make.opset >= 11 else {}
    return Drawn("DepthToSpace", [x], {"blocksize": 2} | modes)


def one_hot(make: Maker, x: str) -> Drawn | None:
    whole = make.recent("int64")
    values = make.constant(np.array([make.random.choice((0, -1)), 1], np.float32))
    axis = {"axis": make.random.choice((-1, 0, 1))} if make.flip() else {}
    return Drawn("OneHot", [whole, make.integers(make.random.choice((4, 9))), values], axis) if whole else None


def resize(make: Maker, x: str) -> Drawn | None:
    shape, opset = make.shape(x), make.opset
    if len(shape) not in (3, 4):
        return None
    factors = [1.0, 1.0, *(make.random.choice((0.5, 0.75, 1.0, 1.5, 2.0, 2.0, 3.0)) for _ in shape[2:])]
    mode = make.random.choice(("nearest", "linear", *(["cubic"] if opset >= 11 and len(shape) == 4 else [])))
    scales = make.constant(np.array(factors, np.float32))
    if opset < 9:
        return Drawn("Upsample", [x], {"scales": factors, "mode": mode})
    if opset < 11:
        return Drawn("Resize" if opset == 10 else "Upsample", [x, scales], {"mode": mode})
    placings = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": make.random.choice(placings)}
    if mode == "nearest":
        roundings = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        attributes["nearest_mode"] = make.random.choice(roundings)
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": -0.5} if make.flip() else {}
        attributes |= {"exclude_outside": 1} if make.flip(0.3) else {}
    if opset >= 18 and mode != "nearest" and make.flip(0.3):
        attributes["antialias"] = 1
    roi = make.constant(np.zeros(0, np.float32)) if opset < 13 else ""
    if make.flip():
        return Drawn("Resize", [x, roi, scales], attributes)
    sizes = make.integers(
        *shape[:2], *(max(1, int(size * factor)) for size, factor in zip(shape[2:], factors[2:], strict=True))
    )
    return Drawn("Resize", [x, roi, "" if opset >= 13 else make.constant(np.zeros(0, np.float32)), sizes], attributes)


def grid_sample(make: Maker, x: str) -> Drawn | None:
    if make.rank(x) != 4 or make.opset < 16:
        return None
    grid = make.constant(make.numbers.uniform(-1.3, 1.3, (make.shape(x)[0], 3, 4, 2)).astype(np.float32))
    modes = ("linear", "nearest", "cubic") if make.opset >= 20 else ("bilinear", "nearest", "bicubic")
    borders = make.random.choice(("zeros", "border", "reflection"))
    chosen = {"mode": make.random.choice(modes), "padding_mode": borders, "align_corners": make.random.choice((0, 1))}
    return Drawn("GridSample", [x, grid], chosen)


def shape_of(make: Maker, x: str) -> Drawn:
    return Drawn(make.random.choice(("Shape", "Size")), [x])
