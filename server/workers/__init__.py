"""The daemon's side of worker processes: starting, watching and replacing them, and the batches that outlive them."""
