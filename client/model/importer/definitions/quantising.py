"""Define the operators of com.microsoft that quantise.

They are what onnxruntime computes, in the order of its roundings: where it applies all scales as one factor, so does
the definition. Whole numbers are dequantised by a scale of one.
"""

from collections.abc import Callable, Mapping
from math import prod

from gputune.client.model.importer.definitions.use import NotDefined, Use


def _zero(use: Use, index: int) -> str:
    """Write a zero point as a float."""
    return f"DequantizeLinear({use.name(index)}, one)" if use.has(index) else "Identity(n0)"


def _add(use: Use) -> str:
    """Add the zero points before rounding, as one number for all elements."""
    return (
        f"{use.zeros()} ra = Div(i1, i6) rb = Div(i4, i6) za = {_zero(use, 2)} zb = {_zero(use, 5)} "
        f"zc = {_zero(use, 7)} ta = Mul(ra, za) tb = Mul(rb, zb) t = Add(ta, tb) fixed = Sub(zc, t) "
        f"a = {use.whole(0, 'z0')} b = {use.whole(3, 'z0')} sb = Mul(b, rb) sa = Mul(a, ra) "
        f"v = Add(sb, fixed) w = Add(v, sa) {use.write_whole('w', 'z0')}"
    )


def _mul(use: Use) -> str:
    return (
        f"{use.zeros()} a = {use.whole(0, use.name(2))} b = {use.whole(3, use.name(5))} p = Mul(a, b) "
        f"s = Mul(i1, i4) k = Div(s, i6) v = Mul(p, k) zc = {_zero(use, 7)} w = Add(v, zc) "
        f"{use.write_whole('w', 'z0')}"
    )


def _average_pool(use: Use) -> str:
    if use.attributes.get("channels_last", 0):
        raise NotDefined("its channels are last")
    return (
        f"{use.zeros()} x = {use.whole(0, use.name(2))} a = AveragePool(x) k = Div(i1, i3) v = Mul(a, k) "
        f"zc = {_zero(use, 4)} w = Add(v, zc) {use.write_whole('w', 'z0')}"
    )


def _global_average_pool(use: Use) -> str:
    rank, last = len(use.shape(0)), use.attributes.get("channels_last", 0)
    return _mean(use, list(range(1, rank - 1) if last else range(2, rank)), True)


def _reduce_mean(use: Use) -> str:
    axes = [axis % len(use.shape(0)) for axis in use.attributes.get("axes", range(len(use.shape(0))))]
    return _mean(use, axes, bool(use.attributes.get("keepdims", 1)))


def _mean(use: Use, axes: list[int], keep: bool) -> str:
    """Add up whole numbers, and apply both scales and their count as one factor."""
    count, kept = prod(use.shape(0)[axis] for axis in axes), f"keepdims = {int(keep)}"
    summed = (
        f"s = ReduceSum<axes = {axes}, {kept}>(x)"
        if use.opset < 13
        else f"axes = Constant<value_ints = {axes}>() s = ReduceSum<{kept}>(x, axes)"
    )
    return (
        f"x = {use.whole(0, use.name(2))} {summed} n = Constant<value = float {{{count}.0}}>() d = Mul(i3, n) "
        f"k = Div(i1, d) w = Mul(s, k) {use.write_whole('w', use.name(4))}"
    )


def _between(op: str) -> Callable[[Use], str]:
    """Return the definition of an operator whose input is dequantised and whose result is quantised."""

    def definition(use: Use) -> str:
        if (use.attributes.get("opset", 13) < 13) != (use.opset < 13):
            raise NotDefined(f"it is that of operator set {use.attributes['opset']}")
        return f"x = {use.read(0)} w = {op}(x) {use.write('w', 3)}"

    return definition


def _concat(use: Use) -> str:
    parts = range(2, use.inputs, 3)
    read = " ".join(f"x{k} = {use.read(k)}" for k in parts)
    return f"{read} w = Concat({', '.join(f'x{k}' for k in parts)}) {use.write('w', 0)}"


def _where(use: Use) -> str:
    return f"a = {use.read(1)} b = {use.read(4)} w = Where(i0, a, b) {use.write('w', 7)}"


def _gemm(use: Use) -> str:
    turned = {name: int(use.attributes.get(name, 0)) for name in ("transA", "transB")}
    if (alpha := use.attributes.get("alpha", 1.0)) != 1.0:
        raise NotDefined(f"its alpha is {alpha}; 1 is supported")
    axis = 0 if turned["transB"] else 1
    right = use.call(f"DequantizeLinear<axis = {axis}>", use.name(3), use.name(4), use.name(5))
    bias = "s = Mul(i1, i4) c = DequantizeLinear<axis = 0>(i6, s)" if use.has(6) else ""
    options = ", ".join(f"{name} = {value}" for name, value in turned.items())
    product = f"a = {use.read(0)} b = {right} {bias} w = Gemm<{options}>(a, b{', c' if use.has(6) else ''})"
    return f"{product} {use.write('w', 7) if use.has(7) else 'y = Identity(w)'}"


def _scaled_product(use: Use, product: str, left: str, right: str, bias: int) -> str:
    """Return a product of integers that is multiplied with both scales at once."""
    added = f"y = Add(m, {use.name(bias)})" if use.has(bias) else "y = Identity(m)"
    return f"p = {product} f = Cast<to = 1>(p) t = Mul({left}, {right}) m = Mul(f, t) {added}"


def _dynamic_product(use: Use) -> str:
    product = use.call("MatMulInteger", "q", "i1", "z", use.name(3))
    return f"q, s, z = DynamicQuantizeLinear(i0) {_scaled_product(use, product, 's', 'i2', 4)}"


def _product_to_float(use: Use) -> str:
    product = use.call("MatMulInteger", "i0", "i1", use.name(4), use.name(5))
    return _scaled_product(use, product, "i2", "i3", 6)


def _lstm(use: Use) -> str:
    """Write a product of bytes and an LSTM whose state is quantised step by step.

    The input is quantised by one range, the state of a step by one over the batch, as onnxruntime does. What the input
    brings to the gates of all steps is one product. The LSTM has it in place of its input, and in place of W the scales
    of R, which holds whole numbers. ONNX has no W of two axes.
    """
    width = 4 * int(use.attributes["hidden_size"])
    shapes = {"flat": [-1], "lines": [0, -1], "one": [1, width], "rows": [-1, 1, width], "halves": [-1, 2, width]}
    written = [f"{name} = Constant<value_ints = {shape}>()" for name, shape in shapes.items()]
    for name, place in (("ws", 8), ("wz", 9), ("rs", 10), ("rz", 11)):  # of each direction, or of each column
        if use.has(place):
            written.append(f"{name}l = Reshape(i{place}, lines) {name} = Expand({name}l, one)")
            written.append(f"{name}f = Reshape({name}, flat)")
    written.append("q, s, z = DynamicQuantizeLinear(i0) wt = Transpose<perm = [1, 0, 2]>(i1) w = Reshape(wt, lines)")
    written.append(f"p = MatMulInteger(q, w, z{', wzf' if use.has(9) else ''}) f = Cast<to = 1>(p) k = Mul(s, wsf)")
    written.append("x = Mul(f, k)")
    gates = "x"
    if use.has(3):
        axes = ("", "<axes = [1], keepdims = 0>") if use.opset < 13 else (", second", "<keepdims = 0>")
        written.append("second = Constant<value_ints = [1]>() b = Reshape(i3, halves)")
        written.append(f"bs = ReduceSum{axes[1]}(b{axes[0]}) bf = Reshape(bs, flat) g = Add(x, bf)")
        gates = "g"
    written.append("rn = Cast<to = 1>(i2)")
    if use.has(11):
        written.append("rzr = Cast<to = 1>(rz) rzs = Reshape(rzr, rows) rw = Sub(rn, rzs)")
    written.append(f"r = Transpose<perm = [0, 2, 1]>({'rw' if use.has(11) else 'rn'})")
    rest = ", ".join(f"i{place}" if use.has(place) else "" for place in (4, 5, 6, 7))
    return " ".join([*written, f"Y, h, c = LSTM({gates}, rs, r, , {rest})"])


QUANTISING: Mapping[str, Callable[[Use], str]] = {
    "DynamicQuantizeLSTM": _lstm,
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulIntegerToFloat": _product_to_float,
    "QGemm": _gemm,
    "QLinearAdd": _add,
    "QLinearAveragePool": _average_pool,
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _global_average_pool,
    "QLinearLeakyRelu": _between("LeakyRelu"),
    "QLinearMul": _mul,
    "QLinearReduceMean": _reduce_mean,
    "QLinearSigmoid": _between("Sigmoid"),
    "QLinearSoftmax": _between("Softmax"),
    "QLinearWhere": _where,
}
