"""Say what the page of a profile holds, section by section."""
