"""The program on the device: compiles, profiles and executes kernels for a host."""
