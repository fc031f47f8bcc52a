"""From plans and winners to a context binary: programs, memory, persistent kernels, and the choice between contexts."""
