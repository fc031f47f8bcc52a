"""Text from a kernel, a driver, a file or another machine, made fit for a terminal or a log."""


def printable(text: object) -> str:
    """In one line, and without the characters by which a terminal is told to do something."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in str(text))
