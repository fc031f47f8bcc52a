"""Make records of one kind of records of another kind, which have some of their fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def as_kind(kind: Callable[..., T], source: object, /, **others: Any) -> T:
    """Return a `kind` (a dataclass) with these fields; all that `source` has under their names are its own."""
    names = (each.name for each in fields(kind) if each.name not in others)  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names if hasattr(source, name)}, **others)
