"""The context binary: its format, what it needs of memory, and ONNX files that stand for it."""
