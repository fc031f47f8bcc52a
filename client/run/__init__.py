"""Run generated contexts: net-run, and ONNX's backend interface."""
