"""Running what was generated: net-run, and ONNX's backend interface."""
