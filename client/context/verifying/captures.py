"""Capture what a context's memory holds between two of its operations, on any target.

The launches are the launches of the file, with its programs, sizes and places in the arenas, up to the last launch of
interest. Only copies run between them: a kernel writes a tensor to its own output before other tensors take its place.
The graph's own outputs become memory that does not leave the target.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gputune.client.context.context_runner import Outcomes
from gputune.client.model.graph import Array
from gputune.client.model.plan import Operation, Plan
from gputune.client.target.client import TargetClient
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.tuning.search.task_search import task_key
from gputune.core.alike import as_kind
from gputune.core.bounds import Scalar
from gputune.core.launches import Launch, Variant
from gputune.kernels.catalogue import family_of
from gputune.runtime.context.format import ContextFile, open_context, write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord, TensorRecord
from gputune.server.protocol.messages import CompileKernel

CHUNK_BYTES = 4096
"""What a work-item copies."""
COPY = f"""\
__kernel void copy_tensor(__global const uchar *from, __global uchar *to, const int last) {{
    const size_t item = get_global_id(0), start = item * {CHUNK_BYTES};
    const int bytes = item + 1 == get_global_size(0) ? last : {CHUNK_BYTES};
    for (int i = 0; i < bytes; ++i)
        to[start + i] = from[start + i];
}}
"""


@dataclass(frozen=True)
class Capture:
    """The bytes of a buffer when so many operations of the plan have run."""

    after: int
    ref: BufferRef


@dataclass(frozen=True)
class OperationLaunches:
    """Which launches of the graph are an operation's, and the buffers that they use, by the kernel's names for them."""

    launches: slice
    refs: Mapping[str, BufferRef]


class Captures:
    """Captures of a graph of a context binary that was made of a plan and outcomes. They leave the file alone.

    graph: as the file has it."""

    def __init__(self, path: Path, plan: Plan, outcomes: Outcomes, client: TargetClient) -> None:
        """Find the places of all tensors in a context. Raises ContextError, OSError."""
        self._path = path
        self._client = client
        self._copy: ProgramRecord | None = None
        with open_context(path) as file:
            self.graph = file.graph_named(plan.name)
        self._places = list(_places(plan, outcomes, self.graph))

    def place(self, operation: int) -> OperationLaunches:
        """Of the operation at that place in the plan."""
        return self._places[operation]

    def read(self, captures: Sequence[Capture], inputs: Mapping[str, Array]) -> list[Array]:
        """Run one inference up to the last capture; return what each was, as bytes. All of it is held here at once.
        Raises TargetError, ContextError, DeviceOrContextError."""
        with tempfile.TemporaryDirectory(prefix="gputune-verify-") as folder:
            path = Path(folder) / "captures.bin"
            with open_context(self._path) as file:
                write_context(path, self._context(file, captures))
            executor = RemoteExecutor(self._client, path, self.graph.name, strict=False)
        try:
            got = executor.run_timed(inputs)[0]
        finally:
            executor.close()
        return list(got.values())

    def _context(self, file: ContextFile, captures: Sequence[Capture]) -> Context:
        header = file.header
        programs = [
            ProgramRecord(file.binary(index), file.source(index), program.options, program.needs)
            for index, program in enumerate(header.programs)
        ]
        return as_kind(
            Context,
            header,
            graphs=[self._opened(captures, copy_program=len(programs))],
            programs=[*programs, self._compiled_copy()],
            weights=[file.weights(index) for index in range(len(header.weights))],
            device=header.device.to_dict(),
        )

    def _opened(self, captures: Sequence[Capture], copy_program: int) -> GraphRecord:
        """Return the graph up to the last capture, with the captures as its outputs and no persistent kernels."""
        graph = self.graph
        launches: list[LaunchRecord] = []
        for done in range(1 + max(capture.after for capture in captures)):
            if done:
                launches += [self._without_outputs(each) for each in graph.launches[self._places[done - 1].launches]]
            for index, capture in enumerate(captures):
                if capture.after == done:
                    launches.append(_copying(self._elsewhere(capture.ref), index, copy_program))
        return replace(
            graph,
            outputs=tuple(
                TensorRecord(f"capture {index}", (capture.ref.nbytes,), "uint8")
                for index, capture in enumerate(captures)
            ),
            inputs=tuple(replace(tensor, memory_type="raw") for tensor in graph.inputs),
            launches=tuple(launches),
            arena_bytes=(*graph.arena_bytes, *(tensor.nbytes for tensor in graph.outputs)),
            persistent=(),
            counter_bytes=0,
        )

    def _without_outputs(self, launch: LaunchRecord) -> LaunchRecord:
        arguments = (self._elsewhere(each) if isinstance(each, BufferRef) else each for each in launch.arguments)
        return replace(launch, arguments=tuple(arguments))

    def _elsewhere(self, ref: BufferRef) -> BufferRef:
        """Return an output of the graph in an arena of its own, behind the graph's; anything else where it is."""
        return (
            replace(ref, kind="arena", index=len(self.graph.arena_bytes) + ref.index) if ref.kind == "output" else ref
        )

    def _compiled_copy(self) -> ProgramRecord:
        if self._copy is None:
            launch = Launch(COPY, "copy_tensor", "", (1,), (1,), ("from", "to", CHUNK_BYTES))
            request = CompileKernel(Variant({}, (), launch, {}), {"from": CHUNK_BYTES, "to": CHUNK_BYTES})
            binaries: list[bytes] = []
            self._client.compile_kernels([request], lambda place, reply: binaries.append(bytes(reply.binary)))
            self._copy = ProgramRecord(binaries[0], launch.source, launch.options)
        return self._copy


def windows(sizes: Sequence[int], most_bytes: int, most: int) -> Iterator[range]:
    """Yield the places of all sizes in turn: at most so many at a time, which take at most so many bytes together; what
    is larger comes alone."""
    first = total = 0
    for place, size in enumerate(sizes):
        if place > first and (total + size > most_bytes or place - first == most):
            yield range(first, place)
            first, total = place, 0
        total += size
    if sizes:
        yield range(first, len(sizes))


def array_of(content: Array, dtype: str, shape: Sequence[int]) -> Array:
    """Return captured bytes as the tensor that they are."""
    return content.view(dtype).reshape(shape)


def _copying(ref: BufferRef, output: int, program: int) -> LaunchRecord:
    chunks = -(-ref.nbytes // CHUNK_BYTES)
    last = ref.nbytes - (chunks - 1) * CHUNK_BYTES
    arguments = (ref, BufferRef("output", output, 0, ref.nbytes), last)
    return LaunchRecord(f"capture {output}", "", program, "copy_tensor", (chunks,), (1,), arguments)


def _places(plan: Plan, outcomes: Outcomes, graph: GraphRecord) -> Iterator[OperationLaunches]:
    first = 0
    for operation in plan.operations:
        kernels = _kernels(operation, outcomes)
        launches = slice(first, first := first + len(kernels))
        refs = {
            name: argument
            for names, launch in zip(kernels, graph.launches[launches], strict=True)
            for name, argument in zip(names, launch.arguments, strict=True)
            if isinstance(name, str) and isinstance(argument, BufferRef)
        }
        yield OperationLaunches(launches, refs)


def _kernels(operation: Operation, outcomes: Outcomes) -> list[Sequence[str | Scalar]]:
    """Return the arguments of an operation's kernels, as its family names them."""
    task = operation.task
    instance = family_of(task.op).render(task.problem, outcomes[task_key(task).digest].configuration)
    return [kernel.arguments for kernel in instance.main.sequence]
