"""Define com.microsoft's DynamicQuantizeLSTM by a product of bytes and an LSTM whose state is quantised step by step.

The input is quantised by one range, the state of a step by one over the batch, as onnxruntime does. What the input
brings to the gates of all steps is one product. The LSTM has it in place of its input, and in place of W the scales of
R, which holds whole numbers. ONNX has no W of two axes.
"""

from collections.abc import Callable


def dynamic_lstm(hidden: int, has: Callable[[int], bool], opset: int) -> str:
    """Return the nodes that compute Y, h and c of inputs i0 and so on. has: whether there is an input."""
    width = 4 * hidden
    shapes = {"flat": [-1], "lines": [0, -1], "one": [1, width], "rows": [-1, 1, width], "halves": [-1, 2, width]}
    written = [f"{name} = Constant<value_ints = {shape}>()" for name, shape in shapes.items()]
    for name, place in (("ws", 8), ("wz", 9), ("rs", 10), ("rz", 11)):  # of each direction, or of each column
        if has(place):
            written.append(f"{name}l = Reshape(i{place}, lines) {name} = Expand({name}l, one)")
            written.append(f"{name}f = Reshape({name}, flat)")
    written.append("q, s, z = DynamicQuantizeLinear(i0) wt = Transpose<perm = [1, 0, 2]>(i1) w = Reshape(wt, lines)")
    written.append(f"p = MatMulInteger(q, w, z{', wzf' if has(9) else ''}) f = Cast<to = 1>(p) k = Mul(s, wsf)")
    written.append("x = Mul(f, k)")
    gates = "x"
    if has(3):
        axes = ("", "<axes = [1], keepdims = 0>") if opset < 13 else (", second", "<keepdims = 0>")
        written.append("second = Constant<value_ints = [1]>() b = Reshape(i3, halves)")
        written.append(f"bs = ReduceSum{axes[1]}(b{axes[0]}) bf = Reshape(bs, flat) g = Add(x, bf)")
        gates = "g"
    written.append("rn = Cast<to = 1>(i2)")
    if has(11):
        written.append("rzr = Cast<to = 1>(rz) rzs = Reshape(rzr, rows) rw = Sub(rn, rzs)")
    written.append(f"r = Transpose<perm = [0, 2, 1]>({'rw' if has(11) else 'rn'})")
    rest = ", ".join(f"i{place}" if has(place) else "" for place in (4, 5, 6, 7))
    return " ".join([*written, f"Y, h, c = LSTM({gates}, rs, r, , {rest})"])
