"""Define perf profiles: their settings, the presets, and their form in files."""
