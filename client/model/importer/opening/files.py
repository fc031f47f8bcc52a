"""Parse a model file, and say what is in its place if it holds no model, or lacks its data files."""

from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from gputune.client.errors import ModelError
from gputune.client.model.importer.opening.weights import tensors_of
from gputune.client.suggestions import near
from gputune.core.files import first_bytes, mistaken, open_file

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIELDS = (*range(1, 9), 14, 20, 25, 26)
"""The numbers of ModelProto's fields."""
_CONTEXT = b"GPUT"


def parsed(path: Path) -> ModelProto:
    """Return the model in a file, not checked, without the content of its data files, which are there. Raises
    ModelError."""
    if not path.is_file():
        if path.exists():
            raise ModelError(f"model {path} is not a file")
        similar = near(path.name, [one.name for one in path.parent.glob("*.onnx")])
        raise ModelError(f"model {path} does not exist" + (f"; did you mean {similar!r}?" if similar else ""))
    try:
        if other := _mistaken(path):
            raise ModelError(f"model {path} {other}")
        model = onnx.load(path, format="protobuf", load_external_data=False)
        if not model.HasField("graph"):
            raise ValueError("it has no graph")
    except OSError as error:
        raise ModelError(f"model {path} cannot be read: {error.strerror or error}") from error
    except ModelError:
        raise
    except Exception as error:  # protobuf's DecodeError, which onnx does not export
        cut = _is_cut_short(path)
        why = "is cut short: copy, download or export it again" if cut else f"is not an ONNX file: {error}"
        raise ModelError(f"model {path} {why}") from error
    _check_data(path, model)
    return model


def _mistaken(path: Path) -> str:
    begin = first_bytes(path)
    if begin.startswith(_CONTEXT):
        return "is a gputune context and no model: give the model that it was made from"
    return mistaken(begin)


def _check_data(path: Path, model: ModelProto) -> None:
    """Raise ModelError for a data file that is missing."""
    places = (place for tensor in tensors_of(model) if (place := _place(tensor)))
    for place in dict.fromkeys(places):
        file = path.parent / place
        if not file.exists():
            raise ModelError(
                f"model {path} keeps weights in {place}, which is missing; it belongs in the folder of the model, "
                f"as {file}"
            )


def _place(tensor: TensorProto) -> str:
    if tensor.data_location != TensorProto.EXTERNAL:
        return ""
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _is_cut_short(path: Path) -> bool:
    """Return whether the fields of a file are those of a model up to its end, which lies within one of them."""
    try:
        with open_file(path) as file:
            data = file.read()
    except OSError:
        return False
    place = 0
    while place < len(data):
        tag, place = _number(data, place)
        kind, size = tag & 7, 0
        if tag >> 3 not in _FIELDS or kind not in (_VARINT, _FIXED64, _BYTES, _FIXED32):
            return False
        if kind in (_VARINT, _BYTES):
            number, place = _number(data, place)
            size = number if kind == _BYTES else 0
        place += {_FIXED64: 8, _FIXED32: 4}.get(kind, size)
    return place > len(data)


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Return the number of variable length at a place, and the place behind it, beyond the data if it is cut off."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            return value, len(data) + 1
        byte = data[place]
        value, place = value | (byte & 0x7F) << shift, place + 1
        if byte < 0x80:
            break
    return value, place
