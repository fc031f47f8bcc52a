"""Decide what to measure next for a task: strategies, their starting points, and when a search is over."""
