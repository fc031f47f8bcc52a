"""Graph passes: each takes a graph and returns one that computes the same with fewer nodes."""
