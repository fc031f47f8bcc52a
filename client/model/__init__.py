"""Turn an ONNX file into a plan: import, passes, lowering, and the operations that could become one kernel."""
