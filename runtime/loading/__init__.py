"""Load what a file holds on a device: open_any knows the kind of a file, executor_on what runs a graph on a device.

devices.py finds and opens the device for which a context was made, or a substitute. verdict.py decides in one place how
a context fits a device. groups.py gives contexts that take turns one set of arenas. pipeline.py joins the outputs of a
context with the inputs of the next. in_parts.py runs a model in parts by onnxruntime.
"""
