"""Make a context binary from plans and winners: programs, memory, persistent kernels, the choice of a context."""
