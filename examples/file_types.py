"""Recognise the types of files from their first and last bytes, with magika's model (Apache-2.0).

    python examples/file_types.py README.md build/classic/*.onnx
    python examples/file_types.py --reference           its own files, and what onnxruntime says of them

The model becomes a context once, with default configurations unless --tuning_effort says otherwise. It then runs in
this process, as an application would run it.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from wheels import from_wheel

import gputune.runtime

CONTEXTS = Path("build") / "file_types"
MODELS = "magika==1.0.3"
INPUT, OUTPUT = "bytes", "target_label"
SURE = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(prog="examples/file_types.py", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="else those beside this program")
    parser.add_argument("--tuning_effort", choices=["none", "quick", "normal", "full"], default="none")
    parser.add_argument("--device", help="that the context is made for, as the generator takes it")
    parser.add_argument("--reference", action="store_true", help="compare with onnxruntime; another type ends with 1")
    options = parser.parse_args()
    model = from_wheel(MODELS, "magika/models/standard_v3_3/model.onnx")
    settings = json.loads(from_wheel(MODELS, "magika/models/standard_v3_3/config.min.json").read_text(encoding="utf-8"))
    files = options.files or sorted(Path(__file__).parent.glob("*.py"))
    for file in files:
        if not file.is_file():
            parser.error(f"there is no file {file}")
    executor = gputune.runtime.load(_context(model, options.tuning_effort, options.device), options.device)
    same = True
    for file in files:
        seen = features(file, settings)
        found = executor.run({INPUT: seen})[OUTPUT][0]
        print(f"{file}: {said(found, settings)}")
        if options.reference:
            expected = _reference(model, seen)
            print(f"    onnxruntime: {said(expected, settings)}")
            same = same and found.argmax() == expected.argmax()
    sys.exit(0 if same else 1)


def features(file: Path, settings: dict[str, int]) -> npt.NDArray[np.int32]:
    """[1, 2048]: the first and the last bytes of a file that are no white space, as magika takes them."""
    with file.open("rb") as opened:
        first = opened.read(settings["block_size"]).lstrip()[: settings["beg_size"]]
        opened.seek(max(file.stat().st_size - settings["block_size"], 0))
        last = opened.read().rstrip()[-settings["end_size"] :]
    seen = np.full((1, settings["beg_size"] + settings["end_size"]), settings["padding_token"], np.int32)
    seen[0, : len(first)] = list(first)
    seen[0, seen.size - len(last) :] = list(last)
    return seen


def said(probabilities: npt.NDArray[np.float32], settings: dict[str, list[str]]) -> str:
    """The likeliest type in words, as sure as the model is of it."""
    best = int(probabilities.argmax())
    doubt = "" if probabilities[best] >= SURE else "perhaps "
    return f"{doubt}{settings['target_labels_space'][best]} ({probabilities[best]:.1%})"


def _reference(model: Path, seen: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    try:
        import onnxruntime
    except ImportError as error:
        sys.exit(f"--reference: pip install onnxruntime ({error})")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    result: npt.NDArray[np.float32] = session.run([OUTPUT], {INPUT: seen})[0][0]
    return result


def _context(model: Path, effort: str, device: str | None) -> Path:
    """The model's context, made when it is not there yet."""
    path = CONTEXTS / f"magika_{effort}.bin"
    if not path.exists():
        print(f"making {path}", file=sys.stderr, flush=True)
        gputune.tune(model, shapes={INPUT: (1, 2048)}, output=path, effort=effort, device=device)
    return path


if __name__ == "__main__":
    main()
