"""Open the device and do what the daemon requests: the worker process."""
