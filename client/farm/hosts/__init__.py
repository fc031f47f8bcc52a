"""Host a device in a farm worker: lock it, check it, and lend it to one job at a time."""
