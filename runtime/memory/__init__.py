"""Share memory between host, device and other processes: handles, and how a device imports them without a copy."""
