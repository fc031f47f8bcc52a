"""What host and device agree on: bytes in, messages out, no socket."""
