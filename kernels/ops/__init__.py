"""The catalogue: each kernel family is one module beside its .cl templates."""
