"""Load contexts and run them: programs, memory and launches of their graphs, alone, in groups and in pipelines.

The memory of a launch may change from one inference to the next. binding.py knows which arguments use which memory and
sets only those again. tensor_memory.py chooses for each input and output: memory of its own, an application's array
(runtime/memory/lending.py) or a memory handle. groups.py gives contexts that take turns one set of arenas. pipeline.py
joins the outputs of a context with the inputs of the next. verdict.py decides in one place how a context fits a device.
"""
