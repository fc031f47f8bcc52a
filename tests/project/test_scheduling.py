"""Test how tests are handed out to processes."""

from collections.abc import Sequence
from types import SimpleNamespace

from xdist.remote import Producer  # type: ignore[import-untyped]

from tests.scheduling import OpenCLByFile


class Process:
    """A process of pytest-xdist that runs whatever it is told to, in order."""

    shutting_down = False

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.asked: list[int] = []

    def send_runtest_some(self, places: Sequence[int]) -> None:
        self.asked += places

    def shutdown(self) -> None:
        self.shutting_down = True


def handed_out(names: Sequence[str], count: int) -> list[list[str]]:
    """What each process runs, where all take equally long for a test."""
    options = SimpleNamespace(loadscopereorder=False)
    config = SimpleNamespace(option=options, getvalue={"tx": ["popen"] * count}.get)
    scheduling = OpenCLByFile(config, Producer("log", enabled=False))
    processes = [Process(number) for number in range(count)]
    ran: list[list[str]] = [[] for _ in processes]
    for process in processes:
        scheduling.add_node(process)
        scheduling.add_node_collection(process, names)
    scheduling.schedule()
    while scheduling.has_pending:
        for process, own in zip(processes, ran, strict=True):
            if len(own) < len(process.asked) and (process.shutting_down or len(own) + 1 < len(process.asked)):
                own.append(names[process.asked[len(own)]])
                scheduling.mark_test_complete(process, process.asked[len(own) - 1])
    return ran


def test_tests_of_a_file_with_opencl_are_kept_together() -> None:
    files = {f"tests/opencl/{name}.py": 4 for name in "abcde"} | {"tests/core/a.py": 40}
    names = [f"{file}::{number}" for file, count in files.items() for number in range(count)]
    ran = handed_out(names, 3)
    assert sorted(name for own in ran for name in own) == sorted(names)
    places = {name: place for place, own in enumerate(ran) for name in own}
    assert all(len({places[name] for name in names if name.startswith(file)}) == 1 for file in list(files)[:-1])
    assert all(len(own) >= 18 for own in ran), "none waits while there is something to do"
