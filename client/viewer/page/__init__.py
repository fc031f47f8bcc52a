"""Write a profile as one self-contained HTML page."""
