"""Define com.microsoft's QAttention and QEmbedLayerNormalization, of which onnxruntime's tools make BERT's parts.

Of attention the product of the input is one of bytes; what follows is computed in floats, as onnxruntime does.
"""

from collections.abc import Callable, Mapping

from onnx import TensorProto

from gputune.client.model.importer.definitions.attention import Heads, attended, causal, masked, split
from gputune.client.model.importer.definitions.fused import normalised
from gputune.client.model.importer.definitions.use import NotDefined, Use


def _attention(use: Use) -> str:
    """Project tokens by a product of bytes, and let them attend to each other."""
    if use.has(8) or use.wants(1):
        raise NotDefined("it has a past or gives a present")
    if use.flag("do_rotary"):
        raise NotDefined("it has rotary embeddings")
    (batch, rows, _), n = use.shape(0), int(use.attributes["num_heads"])
    size = use.shape(1)[1] // 3 // n
    product = use.let(use.call("MatMulInteger", "i0", "i1", use.name(6), use.name(7)))
    scaled = use.let(f"Mul({use.cast(product, TensorProto.FLOAT)}, {use.let('Mul(i3, i4)')})")
    every, width = use.let(f"Add({scaled}, i2)"), n * size
    query, key, value = (
        split(use, use.cut(every, 2, k * width, (k + 1) * width), batch, rows, n, size) for k in range(3)
    )
    heads = Heads(query, key, value, batch, n, rows, size, n, rows, size)
    hiding = causal(use, rows, rows) if use.flag("unidirectional") else ""
    result, _ = attended(use, heads, [masked(use, 5, heads), hiding])
    return f"y = Identity({result})"


def _embedding(use: Use) -> str:
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
    epsilon = float(use.attributes.get("epsilon", 1e-12))
    written.append(normalised(use, "total" if use.has(1) else "a", "gamma", "beta", -1, epsilon))
    if use.has(7):
        written.append("second = Constant<value_ints = [1]>() count = ReduceSum<keepdims = 0>(i7, second)")
    else:
        written.append(f"none = Constant<value_ints = {[0] * use.shape(0)[0]}>() count = Cast<to = 6>(none)")
    return " ".join(written)


OUTPUTS: Mapping[str, tuple[str, ...]] = {"QEmbedLayerNormalization": ("y", "count")}

TRANSFORMER: Mapping[str, Callable[[Use], str]] = {"QAttention": _attention, "QEmbedLayerNormalization": _embedding}
