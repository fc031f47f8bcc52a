"""What an application holds of a context: all of its graphs as one object, and benchmarks of them."""
