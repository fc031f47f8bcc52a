"""Hold the catalogue: each kernel family is one module next to its .cl templates."""
