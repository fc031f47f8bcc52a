"""Serve clients: admission, authentication, connections, and the order in which they use the device."""
