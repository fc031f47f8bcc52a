"""--verify: a finished context against onnxruntime, and where the two part, the operation that is to blame."""
