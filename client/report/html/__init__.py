"""The page of a tuning report, section by section."""
