"""What steers clocks and power of a device, a file for each kind; each takes the root of its files."""
