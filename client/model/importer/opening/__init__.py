"""Opens a model file before its nodes are visited: checks and sorts it, and finds its weights and inputs."""
