"""Write pages: HTML, style and scripts with JSON in them, and drawings that need no browser."""
