"""Make a context binary from plans and winners: programs, memory, persistent kernels, and the choice between contexts.
"""
