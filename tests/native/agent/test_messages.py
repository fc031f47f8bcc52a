"""Test the messages that both sides of an agent know."""

import hashlib

import c_tables
from gputune.server.agent.messages import AGENT_VERSION

KNOWN = (6, "73c8735a7892ebc7")
"""The version, and a digest of its messages as C reads them."""


def test_other_messages_are_another_version() -> None:
    forms = c_tables.agent_messages() + c_tables.agent_header().replace(f"AGENT_VERSION = {AGENT_VERSION}", "")
    digest = hashlib.sha256(forms.encode()).hexdigest()[:16]
    assert (AGENT_VERSION, digest) == KNOWN, "an agent that was built before has to be refused: raise AGENT_VERSION"
