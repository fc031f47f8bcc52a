"""Open a model file before its nodes are visited: check and sort it, and find its weights and inputs."""
