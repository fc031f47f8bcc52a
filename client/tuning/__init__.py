"""Decide what to measure for a model, measure it, and draw conclusions.

tuner.py runs the tasks of a model on one target or on several. task_scheduler.py chooses the next batch, and
expected_gain.py says how much of an inference it may save. task_tuning.py measures, stores and chooses for one task.
search/ proposes configurations; its cache_hit.py decides whether a task is measured at all. measuring/ keeps a task's
inputs on the target, follows the drift of the device and says when a difference is certain.

Every trial, failures included, is in the cache before the next batch begins. A configuration that renders to known
launches takes over their trial.
"""
