"""Measure configurations on a target and compare them under noise."""
