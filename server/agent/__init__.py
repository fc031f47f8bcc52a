"""Work on a device behind an agent, a program in C that needs no Python there."""
