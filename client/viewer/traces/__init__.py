"""Write profiles as traces that other viewers open, and as a table: Chrome's JSON, Perfetto's TrackEvent, CSV."""
