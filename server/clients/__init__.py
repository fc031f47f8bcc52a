"""Clients: admission, authentication, connections, and whose turn it is."""
