"""What touches the device: backends, building, verifying, measuring, the context binary and its executor."""
