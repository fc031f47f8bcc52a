"""The program on the host: from an ONNX model to a tuned context binary."""

import logging

logging.getLogger("gputune").addHandler(logging.NullHandler())  # the application decides what is shown
