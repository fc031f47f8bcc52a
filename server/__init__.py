"""The program on the device: compiles, measures and executes kernels for a host."""
