"""Define operators that ONNX does not have by operators that it has."""

from gputune.client.model.importer.definitions.microsoft import DOMAIN, body_of_microsoft, is_of_microsoft
from gputune.client.model.importer.definitions.use import NotDefined

__all__ = ["DOMAIN", "NotDefined", "body_of_microsoft", "is_of_microsoft"]
