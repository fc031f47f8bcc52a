"""Locate the elements of a tensor: axes, loops over them, and broadcasting."""
