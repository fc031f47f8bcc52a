"""`gputune compare`: a tuned context, an untuned one and other engines, which take turns."""
