"""Carry out one run of the context binary generator, from its request to its summary."""
