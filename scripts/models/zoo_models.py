"""List the models that `scripts/models/zoo` knows by name: where each comes from, and the inputs that it takes."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from PIL import Image

from models import classic_models, material, tune_models

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """A model to run. `file` fetches or makes it, `dimensions` decides inputs whose shapes it leaves open, and `values`
    are those of inputs that are constants. Whole numbers are drawn from `ranges` (from, to), where an input is not
    named there from FLAGS. With `picture` maps are a photographed page: on noise, what looks for text finds none, and
    its outputs are all rounding."""

    file: Callable[[], Path]
    dimensions: Mapping[str, Shape] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    picture: bool = False
    values: Mapping[str, int] = field(default_factory=dict)

    @property
    def arguments(self) -> Iterator[str]:
        """The options of the generator for its inputs."""
        for tensor, shape in self.dimensions.items():
            yield from ("--input_dimensions", f"{tensor}={','.join(map(str, shape))}")
        for tensor, value in self.values.items():
            yield from ("--input_value", f"{tensor}={value}")


SILERO: Mapping[str, Shape] = {"input": (1, 576), "state": (2, 1, 128)}
SEED = 6
FLAGS = (0, 2)
"""The whole numbers that any input takes, be it a mask, an index or a count."""


def _light(name: str) -> Path:
    return classic_models.light(name).path


ENTRIES: Mapping[str, Entry] = {
    "page orientation": Entry(material.orientation_model, {"x": material.ORIENTATION_SHAPE}, picture=True),
    "text angle": Entry(material.angle_model, {"x": material.ANGLE_SHAPE}, picture=True),
    "text detector 320": Entry(material.detector_model, {"x": (1, 3, 320, 320)}, picture=True),
    "text detector 640": Entry(material.detector_model, {"x": (1, 3, 640, 640)}, picture=True),
    "text recogniser": Entry(material.recogniser_model, {"x": (1, 3, 48, 320)}, picture=True),
    "EfficientNet-Lite0": Entry(lambda: tune_models.classifier().path, picture=True),
    "magika": Entry(material.magika_model, {"bytes": (1, 2048)}, {"bytes": (0, 257)}),
    "MiniLM-L6": Entry(
        material.minilm_model,
        dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (1, 128)),
        {"input_ids": (0, 30522), "attention_mask": (1, 2), "token_type_ids": (0, 1)},
    ),
    "silero-vad 16k": Entry(material.silero_model, {"input": (8, 576)}),
    "silero-vad": Entry(material.silero_either_model, SILERO, values={"sr": 16000}),
    "silero-vad op18": Entry(material.silero_ifless_model, SILERO, values={"sr": 16000}),
    "MobileNetV3-Large": Entry(lambda: classic_models.mobilenet_v3_large().path),
    "ResNet-50 320": Entry(lambda: classic_models.resnet50_of(320).path),
    "YOLOv3-tiny 416": Entry(lambda: classic_models.yolo_tiny().path),
    **{name: Entry(partial(_light, name)) for name in classic_models.LIGHT_STEMS},
}
"""By the names that the command line takes."""


def sample(entry: Entry, name: str, shape: Shape, dtype: str, numbers: np.random.Generator) -> npt.NDArray[Any]:
    """A value for one input of a model: a picture, normal numbers, or whole ones from its range."""
    if entry.picture and len(shape) == 4:
        image = Image.open(material.page_picture()).convert("RGB").resize((shape[3], shape[2]))
        maps = np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / np.float32(127.5) - 1
        return np.ascontiguousarray(np.broadcast_to(maps, shape))
    if np.issubdtype(dtype, np.floating):
        return numbers.standard_normal(shape).astype(dtype)
    return numbers.integers(*entry.ranges.get(name, FLAGS), shape).astype(dtype)


def inputs_of(session: onnxruntime.InferenceSession, entry: Entry) -> dict[str, npt.NDArray[Any]]:
    """Return seeded inputs. Ends the program if a shape is open."""
    numbers = np.random.default_rng(SEED)
    inputs = {}
    for one in session.get_inputs():
        shape = entry.dimensions.get(one.name, tuple(one.shape))
        if not all(isinstance(size, int) for size in shape):
            sys.exit(f"its input {one.name!r} has open dimensions {one.shape}; give them with --input_dimensions")
        dtype = {"float": "float32", "double": "float64"}.get(kind := one.type[len("tensor(") : -1], kind)
        value = entry.values.get(one.name)
        drawn = sample(entry, one.name, shape, dtype, numbers) if value is None else np.full(shape, value, dtype)
        inputs[one.name] = drawn
    return inputs
