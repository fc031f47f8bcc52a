"""Implement `gputune compare`: time a tuned context, an untuned context and other engines in turns."""
