"""Define com.microsoft's QAttention and QEmbedLayerNormalization, of which onnxruntime's tools make BERT's parts.

Of attention the product of the input is one of bytes; what follows is computed in floats, as onnxruntime does.
"""

from math import sqrt

from gputune.client.model.importer.definitions.use import NotDefined, Use

MASKED = -10000.0
"""What is added to the products of tokens that are masked."""


def attention(use: Use) -> str:
    """Return the nodes of attention, of tokens among themselves."""
    if use.has(8) or use.outputs > 1:
        raise NotDefined("it has a past or gives a present")
    if use.attributes.get("do_rotary", 0):
        raise NotDefined("it has rotary embeddings")
    heads, width = int(use.attributes["num_heads"]), use.shape(1)[1] // 3
    shapes = {"apart": [0, 0, heads, -1], "lines": [0, 0, -1], "row": [-1], "column": [-1, 1]}
    split = "Split<axis = 2, num_outputs = 3>" if use.opset >= 18 else "Split<axis = 2>"
    product = use.call("MatMulInteger", "i0", "i1", use.name(6), use.name(7))
    return " ".join(
        [
            *(f"{name} = Constant<value_ints = {shape}>()" for name, shape in shapes.items()),
            f"p = {product} f = Cast<to = 1>(p) k = Mul(i3, i4) m = Mul(f, k) all = Add(m, i2)",
            f"q0, k0, v0 = {split}(all)",
            "q1 = Reshape(q0, apart) q2 = Transpose<perm = [0, 2, 1, 3]>(q1)",
            "k1 = Reshape(k0, apart) k2 = Transpose<perm = [0, 2, 3, 1]>(k1)",
            "v1 = Reshape(v0, apart) v2 = Transpose<perm = [0, 2, 1, 3]>(v1)",
            f"between = MatMul(q2, k2) part = Constant<value = float {{{1 / sqrt(width / heads)!r}}}>()",
            f"bare = Mul(between, part) {_masked(use)} weights = Softmax<axis = 3>(masked) w = MatMul(weights, v2)",
            "turned = Transpose<perm = [0, 2, 1, 3]>(w) y = Reshape(turned, lines)",
        ]
    )


def _masked(use: Use) -> str:
    """Write masked: the products, less what hides some of the tokens."""
    batch, tokens, _ = use.shape(0)
    masked = float(use.attributes.get("mask_filter_value", MASKED))
    written = [
        f"place = Constant<value_ints = {list(range(tokens))}>() nothing = Constant<value = float {{0.0}}>()",
        f"hidden = Constant<value = float {{{masked!r}}}>()",
    ]
    value = "bare"
    if use.has(5):
        shape = use.shape(5)
        if shape == (batch, tokens):
            written.append(f"each = Constant<value_ints = [{batch}, 1, 1, {tokens}]>() seen0 = Cast<to = 9>(i5)")
            written.append("seen = Reshape(seen0, each)")
        elif shape == (batch,):  # how many tokens there are
            written.append(f"each = Constant<value_ints = [{batch}, 1, 1, 1]>() count0 = Cast<to = 7>(i5)")
            written.append("count = Reshape(count0, each) seen = Less(place, count)")
        else:
            raise NotDefined(f"its mask has the shape {shape}; {(batch, tokens)} and {(batch,)} are supported")
        written.append("mask = Where(seen, nothing, hidden) hiding = Add(bare, mask)")
        value = "hiding"
    if use.attributes.get("unidirectional", 0):
        written.append(
            "down = Reshape(place, column) later = Greater(place, down) lowest = Constant<value = float {-3e38}>()"
        )
        written.append(f"masked = Where(later, lowest, {value})")
    else:
        written.append(f"masked = Identity({value})")
    return " ".join(written)


def embedding(use: Use) -> str:
    """Return the nodes that add up the rows of up to three tables of bytes, and normalise them."""

    def read(table: int, rows: str) -> str:
        numbers = use.call("DequantizeLinear", f"g{table}", use.name(table + 6), use.name(table + 11))
        return f"g{table} = Gather<axis = 0>(i{table}, {rows}) d{table} = {numbers}"

    tokens = use.shape(0)[1]
    written = [
        f"place = Constant<value_ints = {list(range(tokens))}>() {read(2, 'i0')} {read(3, 'place')} a = Add(d2, d3)",
        f"gamma = {use.call('DequantizeLinear', 'i5', use.name(11), use.name(16))}",
        f"beta = {use.call('DequantizeLinear', 'i6', use.name(12), use.name(17))}",
    ]
    if use.has(1):
        written.append(f"{read(4, 'i1')} total = Add(a, d4)")
    written.append(use.normalised("total" if use.has(1) else "a", "gamma", "beta"))
    if use.has(7):
        one = "ReduceSum<axes = [1], keepdims = 0>(i7)" if use.opset < 13 else "ReduceSum<keepdims = 0>(i7, second)"
        written.append(f"second = Constant<value_ints = [1]>() count = {one}")
    else:
        written.append(f"none = Constant<value_ints = {[0] * use.shape(0)[0]}>() count = Cast<to = 6>(none)")
    return " ".join(written)
