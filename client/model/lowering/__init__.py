"""Graph -> Plan. lowering.py visits the nodes and owns what they become; each other module lowers the operators
that its name says, as functions of the lowering and a node, and operators.py puts their tables together. layouts.py
knows which device tensor holds which tensor of the graph."""

from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.lowering import lower
from gputune.client.model.plan import Operation, Plan, Task

__all__ = ["Lowering", "Operation", "Plan", "Task", "lower"]
