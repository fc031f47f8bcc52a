"""The context binary: its format, loading it, and running it."""
