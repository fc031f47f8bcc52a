"""Define the protocol between host and device: bytes in, messages out, no socket."""
