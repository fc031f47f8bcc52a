"""Search strategies: ask for configurations, tell their trials; no clock, no socket, no cache."""
