"""Device backends, one file each."""
