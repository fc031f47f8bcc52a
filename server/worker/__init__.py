"""The worker process: opens the device and does what the daemon asks."""
