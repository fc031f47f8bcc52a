"""Hand launches to a device: in the order of a loop, or as a queue that was recorded once."""
