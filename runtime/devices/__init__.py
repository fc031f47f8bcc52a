"""Find devices, check that they work, and read their state."""
