"""Set up logs on both sides: the values of --log_level, and how foreign text is made safe for a log or a terminal."""

import logging

LEVELS = {"error": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO, "verbose": logging.DEBUG}


def printable(text: object) -> str:
    """Return text from a kernel, a driver, a file or another machine in one line, and without the characters by which a
    terminal is told to do something."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in str(text))
