"""List the real models that run in onnxruntime, and what has to run where: NODES, which is kept in nodes.json."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gputune.client.model.parts import Cut, cut_model
from models import material, zoo_models
from models.in_onnxruntime import made_models
from models.zoo_models import Entry

TABLE = Path(__file__).with_name("nodes.json")
TOKENS = (1, 64)
LETTERS, WORDS = (1, 30), (5, 30000)
OF_THE_ZOO = (
    "page orientation", "text angle", "text detector 320", "text recogniser", "magika", "MiniLM-L6", "silero-vad",
)  # fmt: skip

ENTRIES: Mapping[str, Entry] = {
    **{name: zoo_models.ENTRIES[name] for name in OF_THE_ZOO},
    "silero-vad cut": Entry(material.silero_either_model, zoo_models.SILERO, {"sr": (16000, 16001)}),
    **{
        f"text2tashkeel {stem}": Entry(partial(material.vowels_model, stem), {"input": TOKENS}, {"input": LETTERS})
        for stem in ("rawi", "rawi_v2", "rawi_v3", "rawi_ensemble")
    },
    "VoiceFilter-Lite": Entry(
        material.voice_model,
        {"stacked_logmel": (1, 50, 512), "dvec": (1, 256), "h0": (3, 1, 512), "c0": (3, 1, 512)},
    ),
    "T5 encoder": Entry(
        material.title_encoder,
        {"input_ids": TOKENS, "attention_mask": TOKENS},
        {"input_ids": WORDS, "attention_mask": (1, 2)},
    ),
    "detector with NonMaxSuppression": Entry(made_models.selecting_detector, picture=True),
    "classifier with float64 inside": Entry(made_models.double_inside, {"x": material.ANGLE_SHAPE}, picture=True),
}
"""By the names that the command line takes."""


def write_table() -> None:
    """Write NODES to the table, a model a line."""
    rows = {name: NODES[name] for name in ENTRIES if name in NODES}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(nodes)}" for name, nodes in rows.items())
    TABLE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def cut_of(entry: Entry) -> Cut:
    """Cut a model as the generator does. Ends the program if the model cannot be downloaded."""
    return cut_model(entry.file(), entry.dimensions, entry.values)


def nodes_of(cut: Cut) -> dict[str, Any]:
    """What the table says of a model: of each part the share of the multiply-adds in percent and how many nodes of the
    model it has; and the host's nodes by operator, if there are any."""
    parts = [{"share": round(100 * part.share, 1), "nodes": part.ops.total()} for part in cut.parts]
    return {"parts": parts, "host": dict(sorted(cut.host_ops.items()))}


NODES: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
