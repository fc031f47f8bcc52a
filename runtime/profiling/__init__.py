"""Where the time of inferences goes: what is recorded while they run, and the log that it is written to."""
