"""Define `gputune performance-cache`, with one file for each group of its commands."""
