"""Define `gputune farm`, with one file for each group of its commands."""
