"""The way to a target server: finding one, speaking with it, and getting it back when it is lost."""
