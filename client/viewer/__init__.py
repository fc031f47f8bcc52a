"""Show profiles of inferences to people and tools: join a log with a schematic and write the forms that viewers read.

A log holds stamps and lines between clocks, no conclusions, so a better account applies to old logs too. profile.py
joins it with the schematic, which says what each launch stands for and is found by a digest of the launches. account.py
divides each inference along the host's clock. traces/timeline.py makes one model of tracks for all traces, and
analysis/ makes one analysis for page and summary.
"""
