"""Handle one connection to a target server: its bytes, its token and TLS, and whether it is alive."""
