"""Who is connected: admission, authentication, connections, and whose turn it is."""
