"""Export a folder that builds by itself: the C runtime, a context and a program that runs it."""
