"""Profiles of inferences for people and tools: what a log and a schematic say together, as viewers read it."""
