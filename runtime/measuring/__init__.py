"""Build, verify and time the variants of a task.

measuring.py measures a batch: building.py builds every variant, launches it once with its real sizes and verifies it;
only then timing.py times all of them, in the rounds of successive_halving.py. A trial records how it was taken and what
it cost.
"""
