"""Why is my device or target not found? Checks that look and change nothing, one file per kind."""
