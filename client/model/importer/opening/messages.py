"""Shorten long parts of messages."""

from collections.abc import Iterable


def first_lines(error: Exception) -> str:
    """Return the part of onnx's long messages that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("==>")]
    return " ".join(lines[:2]) or type(error).__name__


def listing(items: Iterable[str], most: int) -> str:
    """Return the first `most` of the items, and how many more there are."""
    known = list(items)
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")
