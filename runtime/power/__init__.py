"""Perf profiles: which clocks and power states an application asks for, and how a device is brought there and back."""
