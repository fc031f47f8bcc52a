"""Which devices there are, whether they work, and what state they are in."""
