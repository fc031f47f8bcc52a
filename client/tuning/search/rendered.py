"""Identify the launches that a configuration renders to, by a digest that caches keep with every trial and winner.

The digest covers a text with one part for each field. Existing caches hold it, so its form must not change: with
another form, no earlier trial would be found.
"""

import hashlib
from dataclasses import fields, is_dataclass

from gputune.kernels.family import Instance

_FIRST = frozenset({"source", "entry", "options", "global_size", "local_size", "arguments", "stages"})
"""Fields that the text has always had. One that came later is in it where it is not its default, so that what does not
use it keeps its digest."""
_DERIVED = frozenset({"source_sha256", "needs", "writes", "aligned"})
"""Fields that follow from others: a kernel needs and writes what its source and options make it."""


def rendered_sha256(instance: Instance) -> str:
    """Identity of the launches that a configuration was rendered to.

    It covers templates, the text of fused chains, and how sizes become options, grids, arguments and packed buffers.
    """
    packed, scratch = (sorted(sizes.items()) for sizes in (instance.packed, instance.scratch))
    text = f"({_text(instance.prepare)}, {_text(instance.main)}, {packed!r}, {scratch!r})"
    return hashlib.sha256(text.encode()).hexdigest()


def _text(value: object) -> str:
    """Of a launch, a stage, a tuple of them, or a value of a field."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    items = [(item, getattr(value, item.name)) for item in fields(value) if item.name not in _DERIVED]
    told = (f"{item.name}={_text(each)}" for item, each in items if item.name in _FIRST or each != item.default)
    return f"{type(value).__name__}({', '.join(told)})"
