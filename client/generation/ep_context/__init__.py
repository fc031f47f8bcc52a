"""Write ONNX files that stand for a context binary, or for a model of which it holds parts."""

from gputune.client.generation.ep_context.file import EpContextFile, default_file

__all__ = ["EpContextFile", "default_file"]
