"""A loaded context: programs, memory and launches of its graphs, alone or in groups."""
