"""Profiles as traces that viewers of others open, and as a table: Chrome's JSON, Perfetto's TrackEvent, CSV."""
