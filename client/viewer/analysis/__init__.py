"""Analyse a profile: the dominant path, the roofline, findings in words, and the differences from another profile."""
