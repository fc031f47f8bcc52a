"""Write persistent kernels: many launches of a graph as one, for drivers where a launch costs as much as a small
kernel.

With PoCL a launch costs 7 to 8 us next to its kernel, because the workers sleep in between. In small networks that is a
quarter of an inference. So as many work-groups are launched as are sure to run at the same time, and they stay until
all is done. For each launch they share out its groups and then wait for each other at a counter. After Gupta, Stuart,
Owens: A Study of Persistent Threads Style GPU Programming (2012).

The text holds the program of each launch unchanged, except for its questions about its place, as
runtime/backends/merging.py copies it. Launches that are alike share a function, and each function is separate, because
a compiler takes far more than twice as long for a function of twice the length.

Each group has an equal range of every launch's groups and takes portions of it by a counter in memory. At the end of
its own range it takes portions of the others' ranges (affinity scheduling: Markatos, LeBlanc, Using Processor Affinity
in Loop Scheduling on Shared-Memory Multiprocessors, 1994). So a core reads mostly what it has written itself, and
nothing waits for a slow core. When two cores took turns at all groups, they fetched from each other's caches:
EfficientNet-Lite0 took 1.11 times as long, MobileNetV2 1.05 times.

Waiting is bounded, because another program may have the processor of a group that others wait for, for whole time
slices of the system. A group that has waited too long raises a flag. All groups then leave, also those of later
persistent kernels of the same inference. The flag says from which launch on graphs/persistent.c of the C runtime has to
run the inference by launches.

Nothing complete is computed again. A group waits after a launch only when all portions of the launch are taken, and a
taken portion is always computed to its end. So when the kernel has ended, all launches are complete up to the launch
after which a group gave up. Other groups may have begun the launch after that, and no later launch, because there they
wait for the group that gave up. That launch runs again as a whole; client/context/resuming.py makes sure that it finds
its inputs unchanged.

Two things are needed: a driver that runs as many groups at once as there are compute units (`groups_at_once` in
core/quirks.py; elsewhere groups could wait for others forever), and launches whose work-items do not wait for each
other, as their families declare. A context holds both forms, and graphs/persistent.c of the C runtime decides
between them at run time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count

from gputune.client.context.resuming import Access, Resuming
from gputune.core.launches import STANDARDS, Launch, Needs, built_as
from gputune.core.quirks import Fence
from gputune.runtime.backends.merging import OWN_NAMES, UNDECLARED, Text, enabling, key_of, text_of
from gputune.runtime.context.records import (
    COUNTER_LINE_BYTES,
    FLAG,
    LONGEST,
    ROUNDS,
    TICKS,
    BufferKind,
    BufferRef,
    LaunchRecord,
    ProgramRecord,
)

FORM = "persistent, resumed, by ranges, groups that declare not to cooperate, a function for each copy, told writes"
"""Another word when other text is made of the same launches: what was chosen before is compared again then."""

CHARACTERS_AT_MOST = 1 << 19
"""Of the copies in a program: half of what a server takes as one text. What does not fit goes into another program."""

SHARES = 8
"""A range is taken in so many portions, so that the last ones come in together."""

INT_BYTES = 4
COUNTER_INTS = COUNTER_LINE_BYTES // INT_BYTES

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_COOPERATES = re.compile(r"\b(?:barrier|work_group_\w+|sub_group_\w+|async_work_group_\w+|(?:__)?local|LOCAL)\b")
_LOCAL = re.compile(r"^#(?:ifndef LOCAL\b|define LOCAL).*", re.MULTILINE)
"""The definitions of stock templates for kernels with local memory (elements.cl, vectors.cl)."""
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_ASKS = re.compile(r"\bget_(?:global|local|group|num|work)_\w+\s*\(")
_ENTRY = re.compile(r"\b(?:__)?kernel\b[^{;]*?\bvoid\s+(\w+)\s*\(")

SPINS = 16
"""Looks at the count of arrivals in a round of waiting."""

FUNCTIONS = f"""\
// Waits until all groups have come here so often that the count of arrivals is this; keeps the longest wait. Returns
// 0 where the flag was raised instead, by another group, or by this one when it had waited for so many rounds. Atomics
// and fences, so that what was written before is visible behind it.
static __attribute__((noinline)) int gputune_arrive(
    volatile __global int *arrivals, int count, volatile __global int *status, int rounds, int resume, int *longest)
{{
    int waited = 0;
    if (status[{FLAG}])
        return 0;
    GPUTUNE_FENCE;
    atomic_inc(arrivals);
    while (*arrivals < count) {{
        if (status[{FLAG}])
            return 0;
        if (++waited > rounds) {{
            status[{FLAG}] = resume;  // of several groups any may be the last to say so: all are right
            return 0;
        }}
        for (int spin = 0; spin < {SPINS} && *arrivals < count; ++spin)
            ;
    }}
    *longest = max(*longest, waited);
    atomic_add(arrivals, 0);
    GPUTUNE_FENCE;
    return 1;
}}

// The first of a portion of a range with so many groups; at least so many when all are taken, which mostly a look says.
static int gputune_take(volatile __global int *taken, int portion, int count)
{{
    return *taken < count ? atomic_add(taken, portion) : count;
}}
"""

MARKS = f"""\
#ifdef {TICKS}
#define GPUTUNE_MARKS , volatile __global ulong *marks
#define GPUTUNE_PLACE(place) , marks + (place)
#define GPUTUNE_BEGIN if (!marks[0]) marks[0] = {TICKS}();
#define GPUTUNE_END marks[1] = {TICKS}();
#else
#define GPUTUNE_MARKS
#define GPUTUNE_PLACE(place)
#define GPUTUNE_BEGIN
#define GPUTUNE_END
#endif
"""
"""What profilers build differently: TICKS says how. Without it the compiler sees none of this."""


@dataclass(frozen=True)
class Persistent:
    """A persistent kernel and the launches that it stands for. Its arguments are a buffer of `counter_bytes`, zeros at
    first and again when it has run to its end; the status; then the `buffers` as wholes: kinds and indices as those of
    a BufferRef."""

    launches: tuple[LaunchRecord, ...]
    source: str
    options: str
    entry: str
    buffers: tuple[tuple[BufferKind, int], ...]
    counter_bytes: int


def in_fewer_launches(
    launches: Sequence[LaunchRecord],
    programs: Sequence[ProgramRecord],
    groups: int,
    accesses: Sequence[Access],
    fence: Fence,
) -> list[LaunchRecord | Persistent]:
    """Return the launches in order, with a persistent kernel of so many groups in the place of each two and more that
    go together. accesses: what each launch reads and writes; fence: the device's."""
    runs, resuming = _runs(launches, programs, accesses), Resuming(accesses)
    begins = list(accumulate((max(1, len(run)) for run in runs), initial=0))
    plain = [begin for begin, run in zip(begins, runs, strict=False) if len(run) < 2]
    found: list[LaunchRecord | Persistent] = []
    for begin, run in zip(begins, runs, strict=False):
        if len(run) < 2:
            found.append(launches[begin])
        else:
            behind = [place for place in plain if place > begin]
            places = [resuming.place(begun, behind) for begun in range(begin + 1, begin + len(run))]
            found.append(_persistent(run, groups, places, fence))
    return found


def _runs(
    launches: Sequence[LaunchRecord], programs: Sequence[ProgramRecord], accesses: Sequence[Access]
) -> list[list[_Part]]:
    """Return the launches in order, those together that can be one kernel, and none for one that can be a part of
    none."""
    runs: list[list[_Part]] = []
    for launch, access in zip(launches, accesses, strict=True):
        part, run = _part(launch, programs[launch.program], access.needs), runs[-1] if runs else []
        if part is None:
            runs.append([])
        elif run and part.text.rest == run[0].text.rest and _length([*run, part]) <= CHARACTERS_AT_MOST:
            run.append(part)
        else:
            runs.append([part])
    return runs


@dataclass(frozen=True)
class _Part:
    """A launch that can be a part of a persistent kernel. Those that are equal in all but buffers share a copy, and the
    function around it."""

    launch: LaunchRecord
    text: Text
    entries: tuple[str, ...]
    global_size: tuple[int, int, int]
    local_size: tuple[int, int, int]

    @property
    def copy(self) -> tuple[object, ...]:
        numbers = tuple(None if isinstance(each, BufferRef) else each for each in self.launch.arguments)
        return self.launch.program, self.launch.entry, self.global_size, self.local_size, numbers

    @cached_property
    def length(self) -> int:
        """Characters of its copy, about."""
        return sum(map(len, self.text.copy(OWN_NAMES, _macros(self, OWN_NAMES))))

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(a // b for a, b in zip(self.global_size, self.local_size, strict=True))


def _part(launch: LaunchRecord, program: ProgramRecord, needs: Needs | None) -> _Part | None:
    """Return the part that a launch can be; None where it can be a part of no persistent kernel."""
    read = _read(program.source, program.options, launch.entry, launch.local_size, needs)
    if isinstance(read, str):
        return None
    text, entries = read
    return _Part(launch, text, entries, _three(launch.global_size), _three(launch.local_size))


def left_out(launch: Launch) -> list[str]:
    """Return for each kernel of a launch why it can be no part of a persistent kernel; empty if it can."""
    read = (_read(launch.source, launch.options, each.entry, each.local_size, each.needs) for each in launch.sequence)
    return [each if isinstance(each, str) else "" for each in read]


def _read(
    source: str, options: str, entry: str, local_size: Sequence[int], needs: Needs | None
) -> tuple[Text, tuple[str, ...]] | str:
    """Return the text to copy and its kernels, or why it cannot be copied."""
    source = _COMMENT.sub(" ", source)
    if any(_ASKS.search(body) and not _ENTRY.search(head) for head, body in _functions(source)):
        return "another function than the kernel asks for a work-item's place"
    text, entries = text_of(source, options), tuple(_ENTRY.findall(source))
    if isinstance(text, str):
        return text
    if entry not in entries or not text.declared.issuperset(entries):
        return UNDECLARED
    if math.prod(local_size) > 1 and _cooperates(text, needs):
        return "work-items of a group wait for each other"
    return text, entries


def _cooperates(text: Text, needs: Needs | None) -> bool:
    """Return whether work-items of a group wait for each other. Without needs the words of the text decide, whatever
    conditions they stand in."""
    return _COOPERATES.search(_LOCAL.sub("", text.source)) is not None if needs is None else needs.cooperates


def _functions(source: str) -> Iterator[tuple[str, str]]:
    """Yield what stands before the outermost braces, and in them. Macros are not looked into."""
    depth, head, body = 0, "", ""
    for piece in re.split(r"([{}])", _DIRECTIVE.sub("", source)):
        if depth == 0 and piece not in ("{", "}"):
            head = piece
        depth += (piece == "{") - (piece == "}")
        body += piece
        if depth == 0 and piece == "}":
            yield head, body
            body = ""


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _length(parts: Sequence[_Part]) -> int:
    return sum({part.copy: part.length for part in parts}.values())


def _persistent(parts: Sequence[_Part], groups: int, resumes: Sequence[int], fence: Fence) -> Persistent:
    """resumes: where launches go on when a group has given up behind each part but the last."""
    copies = {part.copy: part for part in parts}
    places = {key: number for number, key in enumerate(copies)}
    sizes = (str((part.launch, part.global_size, part.text.options)) for part in parts)
    key = key_of([*(part.text.source for part in copies.values()), *sizes, *map(str, resumes)])
    prefixes = {copy: f"{OWN_NAMES}{key}_{number}_" for copy, number in places.items()}
    refs = [ref for part in parts for ref in _refs(part.launch)]
    buffers = tuple(dict.fromkeys((ref.kind, ref.index) for ref in refs))
    entry, options = f"{OWN_NAMES}{key}_persistent", " ".join(parts[0].text.rest)
    fenced = f"#define GPUTUNE_FENCE {fence.statement}"
    lines = [*enabling(part.text for part in copies.values()), fenced, FUNCTIONS, MARKS]
    for copy, part in copies.items():
        lines += part.text.copy(prefixes[copy], _macros(part, prefixes[copy]))
        lines += _shared_out(part, prefixes[copy], groups)
    lines += _kernel(entry, [(part, prefixes[part.copy]) for part in parts], buffers, groups, resumes)
    return Persistent(
        launches=tuple(part.launch for part in parts),
        source="\n".join(lines) + "\n",
        options=options if fence.standard == STANDARDS[0] else built_as(options, fence.standard),
        entry=entry,
        buffers=buffers,
        counter_bytes=(len(parts) * groups + 1) * COUNTER_LINE_BYTES,
    )


def _macros(part: _Part, prefix: str) -> dict[str, str]:
    """Return what makes functions of kernels, which are told the place of a work-item.

    Where a group has several, the compiler makes vectors of them if it sees what the loop over them does. With one
    there is nothing to gain, but private arrays, which may be as large as a strip of a map, would all be on the stack.
    """
    called = "inline __attribute__((always_inline))" if math.prod(part.local_size) > 1 else "__attribute__((noinline))"
    group, item = ("gputune_x", "gputune_y", "gputune_z"), ("gputune_i", "gputune_j", "gputune_k")
    parameters = ", ".join(f"const int {name}" for name in (*group, *item))
    sizes = tuple(map(str, part.local_size))
    asked = {
        "get_group_id": group,
        "get_local_id": item,
        "get_local_size": sizes,
        "get_num_groups": tuple(map(str, part.groups)),
        "get_global_size": tuple(map(str, part.global_size)),
        "get_global_id": tuple(f"{g} * {size} + {i}" for g, size, i in zip(group, sizes, item, strict=True)),
    }
    macros = {name: f"(d) ((size_t)((d) == 0 ? {x} : (d) == 1 ? {y} : {z}))" for name, (x, y, z) in asked.items()}
    macros |= {"get_global_offset": "(d) ((size_t)0)", "get_work_dim": f"() {len(part.launch.global_size)}u"}
    macros |= dict.fromkeys(("__kernel", "kernel"), f" static {called}")
    macros |= dict.fromkeys(("reqd_work_group_size", "work_group_size_hint", "vec_type_hint"), "(...)")
    # work-items of no part share memory: a group has one, or these are in kernels of the text that are not run
    macros |= {"barrier": "(flags)", "__local": "", "local": ""}
    return macros | {entry: f"(...) {prefix}{entry}({parameters}, __VA_ARGS__)" for entry in part.entries}


def _shared_out(part: _Part, prefix: str, groups: int) -> Iterator[str]:
    """Return the lines of the function that runs a group's share of any launch of a copy.

    The kernel calls it and never contains it. So launches that share a copy share its machine code, and the kernel
    stays short: compilers take far more than twice as long for a function of twice the length.
    """
    x, y, z = part.groups
    each, more = divmod(x * y * z, groups)
    i, j, k = part.local_size
    portion = max(1, each // SHARES)
    place = f"g % {x}, g / {x} % {y}, g / {x * y}, i, j, k"
    buffers = "".join(f", __global char *buffer_{number}" for number in range(len(_refs(part.launch))))
    yield "static __attribute__((noinline)) void"
    counters = "volatile __global int *taken, volatile __global int *status"
    yield f"{_share(prefix)}({counters}, int own{buffers} GPUTUNE_MARKS)"
    yield "{"
    yield f"    for (int turn = 0; turn < {groups}; ++turn) {{"
    yield f"        const int owner = (own + turn) % {groups};"
    yield f"        const int begin = owner * {each} + min(owner, {more}), count = {each} + (owner < {more});"
    yield f"        volatile __global int *counter = taken + owner * {COUNTER_INTS};"
    yield f"        for (int first; !status[{FLAG}] && (first = gputune_take(counter, {portion}, count)) < count;) {{"
    yield "            GPUTUNE_BEGIN"
    yield f"            for (int g = begin + first; g < begin + min(first + {portion}, count); ++g)"
    yield f"                for (int k = 0; k < {k}; ++k)"
    yield f"                    for (int j = 0; j < {j}; ++j) for (int i = 0; i < {i}; ++i)"
    yield f"                        {prefix}{part.launch.entry}({place}, {_given(part.launch)});"
    yield "            GPUTUNE_END"
    yield "        }"
    yield "    }"
    yield "}"


def _kernel(
    entry: str,
    parts: Sequence[tuple[_Part, str]],
    buffers: Sequence[tuple[BufferKind, int]],
    groups: int,
    resumes: Sequence[int],
) -> Iterator[str]:
    """Yield the lines of the kernel itself, the parts with the prefixes of their copies."""
    parameters = ", ".join(f"__global char *{kind}_{index}" for kind, index in buffers)
    yield "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))"
    yield f"void {entry}(volatile __global int *counters, volatile __global int *status, {parameters} GPUTUNE_MARKS)"
    yield "{"
    yield f"    const int rounds = status[{ROUNDS}], own = get_group_id(0);"
    yield "    int longest = 0;"
    for number, (part, prefix) in enumerate(parts):
        places = "".join(f", {ref.kind}_{ref.index} + {ref.offset}L" for ref in _refs(part.launch))
        mark = f"GPUTUNE_PLACE(2 * (own * {len(parts)} + {number}))"
        yield f"    {_share(prefix)}({_taken(number, groups, '0')}, status, own{places} {mark});"
        if number + 1 < len(parts):
            flag = resumes[number] + 1
            yield f"    if (!gputune_arrive(counters, {(number + 1) * groups}, status, rounds, {flag}, &longest))"
            yield "        return;"
            yield f"    *({_taken(number, groups, 'own')}) = 0;  // all have seen that nothing is left of this launch"
    yield f"    atomic_max(status + {LONGEST}, longest);"
    yield "    GPUTUNE_FENCE;"
    yield f"    if (atomic_inc(counters) == {len(parts) * groups - 1}) {{  // the last to leave"
    yield f"        for (int owner = 0; owner < {groups}; ++owner)"
    yield f"            *({_taken(len(parts) - 1, groups, 'owner')}) = 0;"
    yield "        counters[0] = 0;"
    yield "    }"
    yield "}"


def _taken(number: int, groups: int, owner: str) -> str:
    """Return where it is counted how much of an owner's range of a part is taken; each has a line of the caches."""
    return f"counters + ({1 + number * groups} + {owner}) * {COUNTER_INTS}"


def _share(prefix: str) -> str:
    """Return the name of the function around a copy. No name in a source begins with a digit, so none is the same."""
    return f"{prefix}0share"


def _refs(launch: LaunchRecord) -> list[BufferRef]:
    """Return a launch's buffers in the order of its arguments."""
    return [argument for argument in launch.arguments if isinstance(argument, BufferRef)]


def _given(launch: LaunchRecord) -> str:
    """Return a launch's arguments where its buffers have numbers for names."""
    numbers = count()
    return ", ".join(
        f"(__global void *)buffer_{next(numbers)}" if isinstance(argument, BufferRef) else f"({argument})"
        for argument in launch.arguments
    )
