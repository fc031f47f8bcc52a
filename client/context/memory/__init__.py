"""Plan where tensors and constants of a context lie."""
