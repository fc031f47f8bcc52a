"""Write the page of a tuning report, section by section."""
