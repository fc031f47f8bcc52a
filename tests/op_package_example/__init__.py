"""Add an op package: an operator of its own domain, com.example.Wave, and a Softmax that replaces the stock Softmax.

    gputune context-binary-generator --op_packages tests/op_package_example --model model.onnx ...

A distribution would give it a name in its pyproject.toml instead:

    [project.entry-points."gputune.op_packages"]
    example = "gputune_example"
"""

__version__ = "1.0"
