"""Write profiles as a trace that other viewers open, Chrome's JSON, and as a table, CSV."""
