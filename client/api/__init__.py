"""Provide the functions that `gputune` itself exports: tune a model, and check whether it runs."""
