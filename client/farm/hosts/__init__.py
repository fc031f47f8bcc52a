"""What a worker of a farm holds: one device, locked, checked, and lent to one job at a time."""
