"""Where the elements of a tensor lie: axes, loops over them, and broadcasting."""
