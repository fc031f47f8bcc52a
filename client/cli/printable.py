"""Text from a server or a driver, made fit for a terminal."""


def printable(text: object) -> str:
    """In one line, and without the characters by which a terminal is told to do something."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in str(text))
