"""What is measured next for a task: strategies, their starting points, and when it is enough."""
