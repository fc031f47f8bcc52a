"""Say what the pages of a tuning report and of a memory report hold, section by section."""
