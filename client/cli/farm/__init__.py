"""gputune farm: one file per group of its commands."""
