"""Control clocks and power of a device, with a file for each kind of control; each takes the root of its files."""
