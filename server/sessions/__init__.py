"""Hold what clients own on the server: buffers, sources, contexts, waiting requests, and the bounds of all."""
