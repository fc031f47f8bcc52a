"""Read and write the context binary: its format, its memory needs, and ONNX files that stand for it."""
