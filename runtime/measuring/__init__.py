"""Building, verifying and timing the variants of a task."""
