"""Define options that several commands share."""
