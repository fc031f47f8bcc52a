"""Define products and gathers of com.microsoft whose weights have a few bits, and a scale for each block of them.

Weights are dequantised when the model is read. What is known of their numbers and scales brings them back
(importer/folding.py), so that they stay as short on the device.
"""

from collections.abc import Callable, Mapping

from onnx import TensorProto

from gputune.client.model.importer.definitions.use import NotDefined, Use


def _unpacked(use: Use, name: str, bits: int, rows: int, columns: int) -> str:
    """Write bytes [rows, ...] as their numbers [rows, columns], of which a byte holds the lower bits first."""
    if bits == 8:
        return use.reshaped(name, rows, columns)
    if bits != 4:
        raise NotDefined(f"its weights have {bits} bits; 4 and 8 are supported")
    low = use.let(f"BitwiseAnd({name}, {use.cast(use.integer(15), TensorProto.UINT8)})")
    high = use.let(f'BitShift<direction = "RIGHT">({name}, {use.cast(use.integer(4), TensorProto.UINT8)})')
    apart = [use.reshaped(each, rows, -1, 1) for each in (low, high)]
    pairs = use.let(f"Concat<axis = 2>({apart[0]}, {apart[1]})")
    if columns % 2 == 0:
        return use.reshaped(pairs, rows, columns)
    return use.cut(use.reshaped(pairs, rows, -1), 1, 0, columns)


def _product(use: Use) -> str:
    """Write A times B transposed. B is [N, blocks, bytes of a block]; with g_idx, k has the scale of block g_idx[k]."""
    inner, rows = int(use.attributes["K"]), int(use.attributes["N"])
    bits, size = int(use.attributes.get("bits", 4)), int(use.attributes["block_size"])
    blocks = -(-inner // size)
    numbers = _unpacked(use, "i1", bits, rows, blocks * size)
    if inner < blocks * size:
        numbers = use.cut(numbers, 1, 0, inner)
    numbers = use.turned(numbers, 1, 0)
    scales = use.turned(use.reshaped("i2", rows, blocks), 1, 0)
    if not use.has(3):
        middle = use.cast(use.integer(1 << (bits - 1)), TensorProto.UINT8)
        zeros = use.let(f"Expand({middle}, {use.ints(blocks, rows)})")
    elif use.type(3) == TensorProto.UINT8:
        zeros = use.turned(_unpacked(use, use.reshaped("i3", rows, -1), bits, rows, blocks), 1, 0)
    else:
        zeros = use.turned(use.reshaped("i3", rows, blocks), 1, 0)
    if use.has(4) or (use.has(3) and use.type(3) != TensorProto.UINT8):
        places = "i4" if use.has(4) else use.ints(*(k // size for k in range(inner)))
        scales, zeros = (use.let(f"Gather<axis = 0>({each}, {places})") for each in (scales, zeros))
        apart = use.let(f"Sub({use.cast(numbers, use.float_type)}, {use.cast(zeros, use.float_type)})")
        weights = use.let(f"Mul({apart}, {scales})")
    else:  # in few steps: what is folded takes memory
        weights = use.let(f"DequantizeLinear<axis = 0, block_size = {size}>({numbers}, {scales}, {zeros})")
    product = use.let(f"MatMul(i0, {weights})")
    return f"y = Add({product}, i5)" if use.has(5) else f"y = Identity({product})"


def _gather(use: Use) -> str:
    """Write the rows of a table [..., columns] that indices name, dequantised by blocks along the last axis."""
    shape, size = use.shape(0), int(use.attributes.get("block_size", 128))
    bits, rank = int(use.attributes.get("bits", 4)), len(use.shape(0))
    axis = int(use.attributes.get("gather_axis", 0)) % rank
    if int(use.attributes.get("quantize_axis", 1)) % rank != rank - 1 or axis == rank - 1:
        raise NotDefined("its blocks do not lie along the last axis, or it gathers along that")
    packed = use.type(0) == TensorProto.UINT8
    columns = shape[-1] * (8 // bits) if packed else shape[-1]
    rows, blocks = 1, -(-columns // size)
    for length in shape[:-1]:
        rows *= length
    numbers = use.reshaped("i0", rows, -1)
    if packed:
        numbers = _unpacked(use, numbers, bits, rows, columns)
    scales, zeros = use.reshaped("i2", rows, blocks), ""
    if use.has(3):
        flat = use.reshaped("i3", rows, -1)
        zeros = _unpacked(use, flat, bits, rows, blocks) if packed else flat
    elif packed:
        middle = use.cast(use.integer(1 << (bits - 1)), TensorProto.UINT8)
        zeros = use.let(f"Expand({middle}, {use.ints(rows, blocks)})")
    table = use.let(use.call(f"DequantizeLinear<axis = 1, block_size = {size}>", numbers, scales, zeros))
    table = use.reshaped(table, *shape[:-1], columns)
    return f"y = Gather<axis = {axis}>({table}, i1)"


BLOCKS: Mapping[str, Callable[[Use], str]] = {"GatherBlockQuantized": _gather, "MatMulNBits": _product}
