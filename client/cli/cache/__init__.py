"""gputune performance-cache: one file per group of its commands."""
