"""Start, watch and replace worker processes for the daemon, and keep the batches that outlive them."""
