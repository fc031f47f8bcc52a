"""Implement --verify: compare a finished context with onnxruntime, and find the operation that causes a difference."""
