"""Define attention as com.microsoft has it: Attention, MultiHeadAttention, GroupQueryAttention, RotaryEmbedding.

Heads are [batch, heads, rows, size] inside: B, N, S and H for queries, and M heads and T rows for keys and values. Each
key head serves N / M query heads. Masks are added to scores.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onnx import TensorProto

from gputune.client.model.importer.definitions.use import NotDefined, Use

LOWEST: Mapping[int, float] = {TensorProto.FLOAT: -3.4028234663852886e38, TensorProto.FLOAT16: -65504.0}
"""The lowest number of a type; other types take that of float32."""
FILTER = -10000.0
"""The number that hides a key if the node gives none."""


@dataclass(frozen=True)
class Heads:
    """Names of queries, keys and values, and their sizes."""

    query: str
    key: str
    value: str
    batch: int
    heads: int
    rows: int
    size: int
    key_heads: int
    key_rows: int
    value_size: int


def lowest(use: Use) -> str:
    return use.number(LOWEST.get(use.float_type, LOWEST[TensorProto.FLOAT]))


def split(use: Use, name: str, batch: int, rows: int, heads: int, size: int) -> str:
    """Return rows whose heads lie beside each other as [batch, heads, rows, size]."""
    return use.turned(use.reshaped(name, batch, rows, heads, size), 0, 2, 1, 3)


def behind(use: Use, past: str, name: str) -> str:
    return use.let(f"Concat<axis = 2>({past}, {name})") if past else name


def numbered(use: Use, count: int, *shape: int) -> str:
    """Write 0, 1, ... as int64 in a shape."""
    return use.reshaped(use.ints(*range(count)), *shape)


def causal(use: Use, rows: int, key_rows: int) -> str:
    """Write what hides the keys behind each query's own row, which is the last one for the last query: [S, T]."""
    if rows == 1:
        return ""
    row, key = numbered(use, rows, rows, 1), numbered(use, key_rows, 1, key_rows)
    hidden = use.let(f"Greater({key}, {use.let(f'Add({row}, {use.integer(key_rows - rows)})')})")
    return use.let(f"Where({hidden}, {lowest(use)}, {use.number(0)})")


def filtering(use: Use, seen: str) -> str:
    """Write a bool tensor of what is seen as numbers to add."""
    hidden = use.number(use.attributes.get("mask_filter_value", FILTER))
    return use.let(f"Where({seen}, {use.number(0)}, {hidden})")


def masked(use: Use, index: int, heads: Heads) -> str:
    """Write the mask at a place of the inputs as numbers to add: [B or 1, 1, S or 1, T]; "" without one. A mask has the
    number of keys of each batch, or also the first one behind all of them, or 0 and 1."""
    if not use.has(index):
        return ""
    shape, rows, keys, batch = use.shape(index), heads.rows, heads.key_rows, heads.batch
    if len(shape) == 1 and shape[0] in (batch, 2 * batch):
        places = numbered(use, keys, 1, keys)
        ends, name = [], use.cast(f"i{index}", TensorProto.INT64)
        for k in range(shape[0] // batch):
            ends.append(use.reshaped(use.cut(name, 0, k * batch, (k + 1) * batch), batch, 1))
        seen = use.let(f"Less({places}, {ends[0]})")
        if len(ends) == 2:
            seen = use.let(f"And({seen}, {use.let(f'GreaterOrEqual({places}, {ends[1]})')})")
        return filtering(use, use.reshaped(seen, batch, 1, 1, keys))
    seen = use.cast(f"i{index}", TensorProto.BOOL)
    if shape in ((batch, keys), (1, keys)):
        seen = use.reshaped(seen, shape[0], 1, 1, keys)
    elif shape in ((batch, rows, keys), (1, rows, keys)):
        seen = use.reshaped(seen, shape[0], 1, rows, keys)
    else:
        raise NotDefined(f"its mask has the shape {list(shape)}, where there are {rows} queries and {keys} keys")
    return filtering(use, seen)


def attended(use: Use, heads: Heads, masks: Sequence[str], sinks: str | None = None) -> tuple[str, str]:
    """Write the heads' rows of attention as [B, S, N * size of values], and the scores in front of the softmax.

    masks: names to add, each broadcast to [B, N, S, T]. sinks: a score for each head without a key, as [N]; "" for 0.
    """
    b, n, s, t, groups = heads.batch, heads.heads, heads.rows, heads.key_rows, heads.heads // heads.key_heads
    query = heads.query if groups == 1 else use.reshaped(heads.query, b, heads.key_heads, groups * s, heads.size)
    scores = use.let(f"MatMul({query}, {use.turned(heads.key, 0, 1, 3, 2)})")
    scale = use.attributes.get("scale", 0.0) or 1 / math.sqrt(heads.size)
    scores = use.let(f"Mul({scores}, {use.number(scale)})")
    if groups > 1:
        scores = use.reshaped(scores, b, n, s, t)
    if cap := use.attributes.get("softcap", 0.0):
        bent = use.let(f"Tanh({use.let(f'Div({scores}, {use.number(cap)})')})")
        scores = use.let(f"Mul({bent}, {use.number(cap)})")
    for mask in filter(None, masks):
        scores = use.let(f"Add({scores}, {mask})")
    if sinks is None:
        shares = use.let(f"Softmax<axis = 3>({scores})")
    else:
        zeros = use.let(f"Expand({use.number(0)}, {use.ints(b, n, s, 1)})")
        beside = use.let(f"Add({zeros}, {use.reshaped(sinks, 1, n, 1, 1)})") if sinks else zeros
        every = use.let(f"Softmax<axis = 3>({use.let(f'Concat<axis = 3>({scores}, {beside})')})")
        shares = use.cut(every, 3, 0, t)
    if groups > 1:
        shares = use.reshaped(shares, b, heads.key_heads, groups * s, t)
    sums = use.let(f"MatMul({shares}, {heads.value})")
    if groups > 1:
        sums = use.reshaped(sums, b, n, s, heads.value_size)
    return use.reshaped(use.turned(sums, 0, 2, 1, 3), b, s, n * heads.value_size), scores


def _attention(use: Use) -> str:
    """Project rows to queries, keys and values, and attend; past and present have keys and values in one tensor."""
    if use.flag("do_rotary") or use.flag("past_present_share_buffer") or use.has(6):
        raise NotDefined("it turns by place, or has a buffer for past and present")
    (batch, rows, _), n = use.shape(0), use.attributes["num_heads"]
    every = use.shape(1)[1]
    widths = list(use.attributes.get("qkv_hidden_sizes", ())) or [every // 3] * 3
    places = [0, widths[0], widths[0] + widths[1], sum(widths)]

    def projected(k: int) -> str:
        """Write a product of a third of the weights, so that no third of the result has to be cut out."""
        product = use.let(f"MatMul(i0, {use.cut('i1', 1, places[k], places[k + 1])})")
        if use.has(2):
            product = use.let(f"Add({product}, {use.cut('i2', 0, places[k], places[k + 1])})")
        return split(use, product, batch, rows, n, widths[k] // n)

    query, key, value = map(projected, range(3))
    past = ["", ""]
    if use.has(4):
        past = [use.reshaped(use.cut("i4", 0, k, k + 1), *use.shape(4)[1:]) for k in range(2)]
    key, value = behind(use, past[0], key), behind(use, past[1], value)
    keys = rows + (use.shape(4)[3] if use.has(4) else 0)
    heads = Heads(query, key, value, batch, n, rows, widths[0] // n, n, keys, widths[2] // n)
    mask = masked(use, 3, heads)
    hiding = causal(use, rows, keys) if use.flag("unidirectional") else ""
    result, _ = attended(use, heads, [mask, hiding, use.name(5)])
    if not use.wants(1):
        return f"y = Identity({result})"
    both = [use.let(f"Unsqueeze({name}, {use.ints(0)})") for name in (key, value)]
    return f"y = Identity({result}) present = Concat<axis = 0>({both[0]}, {both[1]})"


def _of_several_heads(use: Use) -> Heads:
    """Write the queries, keys and values of MultiHeadAttention, in front of its past."""
    n, shape = use.attributes["num_heads"], use.shape(0)
    batch, rows = shape[:2]
    if len(shape) == 5:  # [B, S, N, 3, H]
        size = shape[4]
        parts = [use.reshaped(use.cut("i0", 3, k, k + 1), batch, rows, n * size) for k in range(3)]
        keys, value_size = rows, size
    elif not use.has(1):
        raise NotDefined("it has no keys")
    else:
        size, key = shape[2] // n, use.shape(1)
        if len(key) == 5:  # [B, T, N, 2, H]
            keys, value_size = key[1], size
            parts = ["i0", *(use.reshaped(use.cut("i1", 3, k, k + 1), batch, keys, n * size) for k in range(2))]
        else:
            keys = key[2] if len(key) == 4 else key[1]
            value_size = use.shape(2)[3] if len(key) == 4 else use.shape(2)[2] // n
            parts = ["i0", "i1", "i2"]
    lined = [len(use.shape(1)) != 4 or k == 0 if use.has(1) else True for k in range(3)]
    widths, lengths = [n * size, n * size, n * value_size], [rows, keys, keys]
    if use.has(3):
        start = 0
        for k, width in enumerate(widths):
            if lined[k]:
                parts[k] = use.let(f"Add({parts[k]}, {use.cut('i3', 0, start, start + width)})")
            start += width
    query, key_name, value = (
        split(use, parts[k], batch, lengths[k], n, widths[k] // n) if lined[k] else parts[k] for k in range(3)
    )
    return Heads(query, key_name, value, batch, n, rows, size, n, keys, value_size)


def _multi_head(use: Use) -> str:
    if use.has(8) or use.has(9):
        raise NotDefined("it has the inputs of a beam search")
    own = _of_several_heads(use)
    past = use.shape(6)[2] if use.has(6) else 0
    key, value = behind(use, use.name(6), own.key), behind(use, use.name(7), own.value)
    sizes = vars(own) | {"key": key, "value": value, "key_rows": own.key_rows + past}
    heads = Heads(**sizes)
    mask = masked(use, 4, heads)
    hiding = causal(use, heads.rows, heads.key_rows) if use.flag("unidirectional") else ""
    result, scores = attended(use, heads, [mask, hiding, use.name(5)])
    return f"y = Identity({result}) key = Identity({key}) value = Identity({value}) scores = Identity({scores})"


def turned_by_place(use: Use, name: str, places: str, cosines: str, sines: str, size: int, pairs: bool) -> str:
    """Write a rotary embedding of [B, N, S, size]: numbers k and k + half of the first numbers of a head are turned by
    an angle, or, as `pairs`, numbers 2 k and 2 k + 1. places: of rows in tables [places, half], as int64[B or 1, S].
    Source: Su et al., RoFormer, 2021."""
    half = use.shape(int(cosines[1:]))[1]
    around = [
        use.let(f"Unsqueeze({use.let(f'Gather({table}, {places})')}, {use.ints(1)})") for table in (cosines, sines)
    ]
    if pairs:
        first, second = (use.cut(name, 3, k, 2 * half, 2) for k in range(2))
    else:
        first, second = use.cut(name, 3, 0, half), use.cut(name, 3, half, 2 * half)
    products = [[use.let(f"Mul({part}, {by})") for by in around] for part in (first, second)]
    left = use.let(f"Sub({products[0][0]}, {products[1][1]})")
    right = use.let(f"Add({products[0][1]}, {products[1][0]})")
    if pairs:
        shape = use.let(f"Shape({left})")
        ends = [use.let(f"Unsqueeze({part}, {use.ints(4)})") for part in (left, right)]
        both = use.let(f"Concat<axis = 4>({ends[0]}, {ends[1]})")
        count = use.let(f"Mul({use.cut(shape, 0, 3, 4)}, {use.ints(2)})")
        whole = use.let(f"Concat<axis = 0>({use.cut(shape, 0, 0, 3)}, {count})")
        turned = use.let(f"Reshape({both}, {whole})")
    else:
        turned = use.let(f"Concat<axis = 3>({left}, {right})")
    if 2 * half == size:
        return turned
    return use.let(f"Concat<axis = 3>({turned}, {use.cut(name, 3, 2 * half, size)})")


def _rotary(use: Use) -> str:
    if use.flag("is_packed_batching"):
        raise NotDefined("batches are packed")
    shape, half = use.shape(0), use.shape(2)[1]
    flat = len(shape) == 3
    size = shape[-1] // use.attributes["num_heads"] if flat and use.attributes.get("num_heads") else 2 * half
    batch, rows = (shape[0], shape[1]) if flat else (shape[0], shape[2])
    if not flat:
        size = shape[3]
    heads = split(use, "i0", batch, rows, shape[2] // size, size) if flat else "i0"
    places = "i1"
    if len(use.shape(1)) < 2 and use.shape(1) in ((), (1,)):
        places = use.let(f"Add({numbered(use, rows, 1, rows)}, i1)")
    turned = turned_by_place(use, heads, places, "i2", "i3", size, use.flag("interleaved"))
    if flat:
        turned = use.reshaped(use.turned(turned, 0, 2, 1, 3), *shape)
    return f"y = Identity({turned})"


def _kept(use: Use, past: str, new: str, start: str, shape: Sequence[int], rows: int) -> str:
    """Write a state [B, M, T, H]: new rows from `start` on, an int64[B, 1], the past's in front, and zeros behind."""
    batch, length = shape[0], shape[2]
    place = use.let(f"Sub({numbered(use, length, 1, length)}, {start})")
    nearest = use.let(f"Clip({place}, {use.integer(0)}, {use.integer(rows - 1)})")
    index = use.let(f"Expand({use.reshaped(nearest, batch, 1, length, 1)}, {use.ints(*shape)})")
    moved = use.let(f"GatherElements<axis = 2>({new}, {index})")
    is_past = use.reshaped(use.let(f"Less({place}, {use.integer(0)})"), batch, 1, length, 1)
    is_over = use.reshaped(use.let(f"Greater({place}, {use.integer(rows - 1)})"), batch, 1, length, 1)
    kept = use.let(f"Where({is_over}, {use.number(0)}, {moved})")
    return use.let(f"Where({is_past}, {past}, {kept})")


def _longer(use: Use, name: str, length: int) -> str:
    """Write a tensor with zeros behind it, up to a length of axis 2."""
    batch, heads, own, size = use.shape(int(name[1:]))
    if own == length:
        return name
    zeros = use.let(f"Expand({use.number(0)}, {use.ints(batch, heads, length - own, size)})")
    return use.let(f"Concat<axis = 2>({name}, {zeros})")


def _grouped(use: Use) -> str:
    """Attend with fewer key heads than query heads. The past lies in a buffer, where each batch has its own length, or
    grows: the present has room for the whole sequence, if that is known."""
    attributes = use.attributes
    n, m, (batch, rows, width) = attributes["num_heads"], attributes["kv_num_heads"], use.shape(0)
    size = width // n if use.has(1) else width // (n + 2 * m)
    parts = ["i0", "i1", "i2"]
    if not use.has(1):
        places = [0, n * size, (n + m) * size, (n + 2 * m) * size]
        parts = [use.cut("i0", 2, places[k], places[k + 1]) for k in range(3)]
    query, key, value = (split(use, parts[k], batch, rows, (n, m, m)[k], size) for k in range(3))
    past = use.shape(3)[2] if use.has(3) else 0
    whole, ends = use.known(6), use.known(5)
    length = max(past, 0 if whole is None else int(whole.flat[0])) if past else rows
    grown = length == past + rows and ends is not None and bool((ends == length - 1).all())
    if not rows <= length <= past + rows:
        raise NotDefined(f"{rows} rows do not fit into a past of {past}, or end behind its sequence of {length}")
    known = use.reshaped(use.cast("i5", TensorProto.INT64), batch, 1)
    start = use.let(f"Sub({known}, {use.integer(rows - 1)})")
    if rows > 1:  # a prompt begins at 0, also where its length is not that of all batches
        total = use.reshaped(use.cast("i6", TensorProto.INT64), 1, 1)
        first = use.let(f"Equal({total}, {use.integer(rows)})")
        start = use.let(f"Where({first}, {use.integer(0)}, {start})")
    if not use.has(3):
        start = use.let(f"Mul({start}, {use.integer(0)})")
    own = use.let(f"Add({start}, {numbered(use, rows, 1, rows)})")
    if use.flag("do_rotary"):
        places_of = use.reshaped("i9", batch, rows) if use.has(9) else own
        pairs = use.flag("rotary_interleaved")
        query, key = (turned_by_place(use, each, places_of, "i7", "i8", size, pairs) for each in (query, key))
    if grown and use.has(3):
        key, value = behind(use, "i3", key), behind(use, "i4", value)
    elif use.has(3):
        key, value = (
            _kept(use, _longer(use, f"i{3 + k}", length), each, start, (batch, m, length, size), rows)
            for k, each in enumerate((key, value))
        )
    keys = numbered(use, length, 1, 1, 1, length)
    last = use.reshaped(own, batch, 1, rows, 1)
    hidden = use.let(f"Greater({keys}, {last})")
    if (window := attributes.get("local_window_size", -1)) > 0:
        begin = use.let(f"Sub({last}, {use.integer(window)})")
        hidden = use.let(f"Or({hidden}, {use.let(f'LessOrEqual({keys}, {begin})')})")
    mask = use.let(f"Where({hidden}, {lowest(use)}, {use.number(0)})")
    heads = Heads(query, key, value, batch, n, rows, size, m, length, size)
    numbers = use.name(10)
    if numbers and (left := length - use.shape(10)[3]):  # they end where the keys of the longest batch do
        none = use.let(f"Expand({use.number(0)}, {use.ints(*use.shape(10)[:3], left)})")
        numbers = use.let(f"Concat<axis = 3>({numbers}, {none})")
    sinks = use.name(11) if use.has(11) else "" if use.flag("smooth_softmax") else None
    result, _ = attended(use, heads, [numbers, mask], sinks)
    return f"y = Identity({result}) key = Identity({key}) value = Identity({value})"


OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "Attention": ("y", "present"),
    "GroupQueryAttention": ("y", "key", "value"),
    "MultiHeadAttention": ("y", "key", "value", "scores"),
}

ATTENTION: Mapping[str, Callable[[Use], str]] = {
    "Attention": _attention,
    "GroupQueryAttention": _grouped,
    "MultiHeadAttention": _multi_head,
    "RotaryEmbedding": _rotary,
}
