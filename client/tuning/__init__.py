"""Tuning: what is measured for a task, in which order, and what is concluded from it."""
