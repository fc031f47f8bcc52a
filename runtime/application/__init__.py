"""Give an application a context: all of its graphs as one object, and benchmarks of them."""
