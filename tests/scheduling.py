"""Hand out tests to the processes of pytest-xdist: those with OpenCL file by file, others wherever there is room."""

from collections.abc import Sequence
from typing import Any

from xdist.scheduler.loadgroup import LoadGroupScheduling  # type: ignore[import-untyped]

OPENCL = "tests/opencl/"


class OpenCLByFile(LoadGroupScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Tests of a file with OpenCL run on one process, which makes their fixtures once; others run wherever there is
    room. By names, since pytest 9 does not take the ones that pytest-xdist 3.8 gives to tests of a group.

    What pytest-xdist does for each test takes time in proportion to all tests there are. Here it does not: places of
    tests are looked up in a table, and units that are done are forgotten."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        self._places: dict[str, int] = {}

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        if not self._places:  # all have the same collection, else none is asked to run anything
            self._places = {name: place for place, name in enumerate(collection)}

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(OPENCL) else nodeid

    def _assign_work_unit(self, node: Any) -> None:
        scope, unit = self.workqueue.popitem(last=False)
        self.assigned_work[node][scope] = unit
        node.send_runtest_some([self._places[name] for name, done in unit.items() if not done])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        units = self.assigned_work[node]
        for scope in [scope for scope, unit in units.items() if all(unit.values())]:
            del units[scope]
