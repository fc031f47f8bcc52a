"""Read the text of a picture with three models: find the text, detect which way up it is, and recognise it.

    python examples/ocr.py                            a photographed page, from scikit-image
    python examples/ocr.py picture.png --reference    and what rapidocr-onnxruntime reads, with the error rate

The models are PP-OCR's (Apache-2.0), from the wheel rapidocr-onnxruntime. Each becomes a context once, with default
configurations unless --tuning_effort says otherwise. The recogniser's context has a graph for each width of a line.

All three then run in this process, as an application would run them. They form one group, whose graphs share a set of
arenas in turns. They use memory handles: pictures are drawn there and results are read there without a copy.
"""

import argparse
import importlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from PIL import Image
from text_boxes import boxes_of
from wheels import from_wheel

from gputune.runtime import ContextGroup, Executor, load_group

Floats = npt.NDArray[np.floating]

CONTEXTS = Path("build") / "ocr"
MODELS = "rapidocr-onnxruntime==1.4.4"
CLASSIFIED = (1, 3, 48, 192)
"""Shape of what the classifier looks at."""
INPUT = "x"
LEAST_SIDE = 736
"""The detector finds text that is large enough in a picture whose shorter side has so many pixels."""
HEIGHT = 48
WIDTHS = (320, 480, 640, 960, 1200)
"""Of lines as the recogniser reads them, with little emptiness behind them; a longer one is squeezed."""
TURNED = 0.9
"""So sure must the classifier be to turn a line."""
READABLE = 0.5
TALL = 1.5
"""A box that is so many times as high as wide holds a line that runs down."""


@dataclass(frozen=True)
class Line:
    """What a line says, and how sure the recogniser is of its characters on average."""

    text: str
    score: float


class Model:
    """A graph with one input and one output, both in memory handles. pixels: the input, where a picture is drawn;
    width: of that."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        for tensor in (*executor.graph.inputs, *executor.graph.outputs):
            handle = executor.allocate_for(tensor)
            executor.register(tensor.name, handle)
            if tensor.name == INPUT:
                self.pixels: Floats = handle.view(tensor.dtype, tensor.shape)
                self.width = tensor.shape[3]

    def run(self) -> Floats:
        """What it makes of its picture; the next run writes there again."""
        (result,) = self._executor.run().values()
        return result


class Reader:
    """The three contexts, and the characters that the recogniser knows. memory: what they have and would have apart, in
    a line for people."""

    def __init__(self, picture: tuple[int, int], effort: str, device: str | None) -> None:
        """picture: width and height of what will be read, which decide the detector's size."""
        self.size = _detector_size(picture)
        width, height = self.size
        shape = (1, 3, height, width)
        detector = _context(_model("ch_PP-OCRv4_det_infer"), f"detector_{height}x{width}", [shape], effort, device)
        classifier = _context(_model("ch_ppocr_mobile_v2.0_cls_infer"), "classifier", [CLASSIFIED], effort, device)
        shapes = [(1, 3, HEIGHT, width) for width in WIDTHS]
        text = _model("ch_PP-OCRv4_rec_infer")
        recogniser = _context(text, "recogniser", shapes, effort, device)
        group = load_group([detector, classifier, recogniser], names=["detector", "classifier", "recogniser"])
        self._detector, self._classifier = Model(group["detector"]), Model(group["classifier"])
        models = [Model(group[name]) for name in group if name.startswith("recogniser/")]
        self._recognisers = {model.width: model for model in models}
        self.memory = memory_line(group)
        self._characters = _characters(text)

    def read(self, picture: Image.Image) -> list[Line]:
        """The lines of a picture in the order in which people read them."""
        _draw(picture, self.size, self._detector)
        boxes = boxes_of(self._detector.run()[0, 0])
        scale = np.array(picture.size) / self.size
        lines = [self._line(_cut(picture, box * scale)) for box in boxes]
        return [line for line in lines if line.score >= READABLE]

    def _line(self, cut: Image.Image) -> Line:
        _draw_line(cut, self._classifier)
        if self._classifier.run()[0, 1] > TURNED:
            cut = cut.transpose(Image.Transpose.ROTATE_180)
        wanted = HEIGHT * cut.width / cut.height
        width = min((width for width in self._recognisers if width >= wanted), default=max(self._recognisers))
        _draw_line(cut, self._recognisers[width])
        return self._decoded(self._recognisers[width].run()[0])

    def _decoded(self, probabilities: Floats) -> Line:
        """The text of [steps, characters]: the best of each step, repetitions and blanks left out."""
        best = probabilities.argmax(axis=1)
        kept = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])
        text = "".join(self._characters[index - 1] for index in best[kept])
        return Line(text, float(probabilities.max(axis=1)[kept].mean()) if kept.any() else 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="examples/ocr.py", description=__doc__.splitlines()[0])
    parser.add_argument("picture", nargs="?", type=Path, help="else a page from scikit-image's test pictures")
    parser.add_argument("--tuning_effort", choices=["none", "quick", "normal", "full"], default="none")
    parser.add_argument("--device", help="that contexts are made for, as the generator takes it")
    parser.add_argument(
        "--reference", action="store_true", help="compare with rapidocr-onnxruntime, where it is installed"
    )
    parser.add_argument("--most_errors", type=float, default=0.05, help="error rate from which on the exit code is 1")
    options = parser.parse_args()
    path = options.picture or from_wheel("scikit-image==0.25.2", "skimage/data/page.png")
    if not path.is_file():
        parser.error(f"there is no picture {path}")
    picture = Image.open(path).convert("RGB")
    reader = Reader(picture.size, options.tuning_effort, options.device)
    print(reader.memory, file=sys.stderr)
    text = "\n".join(line.text for line in reader.read(picture))
    print(text)
    if options.reference:
        expected = _reference(path)
        errors = error_rate(text, expected)
        print(f"\nrapidocr-onnxruntime reads:\n{expected}\n\ncharacter error rate {errors:.2%}")
        sys.exit(1 if errors > options.most_errors else 0)


def memory_line(group: ContextGroup) -> str:
    """How many bytes a group's arenas and weights have, and what they would have if each graph had its own."""
    graphs = [group[name] for name in group if "/" in name]
    apart = sum(_weights_bytes(graph) for graph in graphs)
    arenas, weights = sum(group.memory.arenas), group.memory.weights
    return (
        f"{len(graphs)} graphs: arenas {arenas / 1e6:.1f} MB instead of {group.memory.private / 1e6:.1f} MB, "
        f"weights {weights / 1e6:.1f} MB instead of {apart / 1e6:.1f} MB"
    )


def _weights_bytes(executor: Executor) -> int:
    """Of one graph alone."""
    header = executor.header
    read = {ref.index for launch in executor.graph.launches for ref in launch.refs if ref.kind == "weights"}
    return sum(header.sections[header.weights[index]].length for index in read)


def error_rate(text: str, expected: str) -> float:
    """How many characters must be changed, put in or left out, by how many are expected (Levenshtein's distance)."""
    row = list(range(len(expected) + 1))
    for number, letter in enumerate(text, 1):
        diagonal, row[0] = row[0], number
        for place, other in enumerate(expected, 1):
            diagonal, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, diagonal + (letter != other))
    return row[-1] / max(len(expected), 1)


def _reference(path: Path) -> str:
    try:
        rapidocr = importlib.import_module("rapidocr_onnxruntime")
    except ImportError as error:
        sys.exit(f"--reference: pip install {MODELS} ({error})")
    found, _ = rapidocr.RapidOCR()(str(path))
    return "\n".join(text for _, text, _ in found or [])


def _model(name: str) -> Path:
    return from_wheel(MODELS, f"rapidocr_onnxruntime/models/{name}.onnx")


def _context(model: Path, name: str, shapes: Sequence[tuple[int, ...]], effort: str, device: str | None) -> Path:
    """The context of a model, made when it is not there yet: a graph for each shape of its input."""
    path = CONTEXTS / f"{name}_{effort}.bin"
    if not path.exists():
        dimensions = ";".join(f"{INPUT}={','.join(map(str, shape))}" for shape in shapes)
        command = [sys.executable, "-m", "gputune", "context-binary-generator"]
        command += ["--model", str(model), "--binary_file", str(path.resolve()), "--input_dimensions", dimensions]
        command += ["--input_output_tensor_mem_type", "memhandle"]  # loading allocates none for them
        command += ["--tuning_effort", effort, *(["--device", device] if device else [])]
        print(f"making {path}", file=sys.stderr, flush=True)
        if subprocess.run(command).returncode:
            sys.exit(f"{name}: see the message above")
    return path


def _detector_size(picture: tuple[int, int]) -> tuple[int, int]:
    """Width and height for the detector: multiples of 32, the shorter one at least LEAST_SIDE."""
    scale = max(LEAST_SIDE / min(picture), 1.0)
    width, height = (max(round(int(side * scale) / 32), 1) * 32 for side in picture)
    return width, height


def _draw(picture: Image.Image, size: tuple[int, int], model: Model) -> None:
    """Fills a model's [1, 3, height, width], blue first, from -1 to 1: the picture in that size, zeros to the right of
    it."""
    pixels = np.asarray(picture.resize(size, Image.Resampling.BILINEAR), np.float32)[:, :, ::-1]
    model.pixels[0, :, :, : size[0]] = (pixels / 255 - 0.5).transpose(2, 0, 1) / 0.5
    model.pixels[0, :, :, size[0] :] = 0


def _draw_line(cut: Image.Image, model: Model) -> None:
    own = min(max(int(np.ceil(HEIGHT * cut.width / cut.height)), 1), model.width)
    _draw(cut, (own, HEIGHT), model)


def _cut(picture: Image.Image, box: Floats) -> Image.Image:
    """What lies in a box, upright."""
    box = np.clip(box.round(), 0, np.array(picture.size) - 1)  # whole pixels: an upright line is copied as it is
    across = max(np.linalg.norm(box[1] - box[0]), np.linalg.norm(box[2] - box[3]))
    deep = max(np.linalg.norm(box[3] - box[0]), np.linalg.norm(box[2] - box[1]))
    corners = box[[0, 3, 2, 1]].reshape(-1)  # counter-clockwise, as pillow wants them
    size = max(int(across), 1), max(int(deep), 1)
    cut = picture.transform(size, Image.Transform.QUAD, corners.tolist(), Image.Resampling.BICUBIC)
    return cut.transpose(Image.Transpose.ROTATE_90) if cut.height >= TALL * cut.width else cut


def _characters(model: Path) -> list[str]:
    """What the recogniser's classes stand for, behind the blank."""
    metadata = {entry.key: entry.value for entry in onnx.load(str(model)).metadata_props}
    return [*metadata["character"].splitlines(), " "]


if __name__ == "__main__":
    main()
