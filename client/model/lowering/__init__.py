"""Lower a Graph to a Plan.

lowering.py visits the nodes and owns the operations that they become. Each other module lowers the operators that its
name says, as functions of the lowering and a node. operators.py combines their tables. layouts.py knows which device
tensor holds which tensor of the graph. supported.py names the nodes that cannot be lowered.
"""

from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.lowering import lower
from gputune.client.model.lowering.supported import refusals_of
from gputune.client.model.plan import Operation, Plan, Task

__all__ = ["Lowering", "Operation", "Plan", "Task", "lower", "refusals_of"]
