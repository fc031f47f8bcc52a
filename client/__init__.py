"""Turn an ONNX model into a tuned context binary, and run, compare and report on it: the program on the host."""

import logging

logging.getLogger("gputune").addHandler(logging.NullHandler())  # the application decides what is shown
