"""Find out why a device or target is not found: checks that read and change nothing, one file for each kind."""
