"""Split lists that are given as one text on a command line."""

import csv


def comma_separated(text: str) -> list[str]:
    """Return the parts of a text with commas between them, such as "a.bin,b.bin". A part with commas of its own stands
    in double quotes: `"a,b.bin",c.bin`. Raises ValueError for quotes that do not fit."""
    try:
        (parts,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{text!r}: {error}") from None
    return parts


def parts_outside_quotes(text: str, separator: str) -> list[str]:
    """Return the parts of a text with this character between them, as they are written; within double quotes it
    separates nothing."""
    parts: list[str] = []
    for piece in text.split(separator):
        if parts and parts[-1].count('"') % 2:
            parts[-1] += separator + piece
        else:
            parts.append(piece)
    return parts
