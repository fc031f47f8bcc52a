"""Define operators that ONNX does not have by operators that it has."""

from gputune.client.model.importer.definitions.microsoft import DOMAIN, body_of_microsoft, is_of_microsoft

__all__ = ["DOMAIN", "body_of_microsoft", "is_of_microsoft"]
