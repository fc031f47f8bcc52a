"""Memory that host, device and other processes share: handles, and how a device takes them without a copy."""
