"""The program on the host: from an ONNX model to a tuned context binary."""
