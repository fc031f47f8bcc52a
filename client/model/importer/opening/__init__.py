"""What a model file holds, before its nodes are visited: checked and sorted, with its weights and inputs."""
