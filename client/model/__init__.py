"""From an ONNX file to a plan: import, passes, lowering, and which operations could be one kernel."""
