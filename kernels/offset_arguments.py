"""Give kernels the buffers that they share with others as a whole buffer and an offset in it.

A sub-buffer is an object of its own, and some drivers look at all objects of a launch and at their parents each time:
on an NVIDIA H100 a launch with sub-buffers takes 24 us and a launch with buffers 4 us. A kernel in this form takes, for
each buffer, the whole and a number:

    #define __kernel static inline __attribute__((always_inline))
    ...the source, unchanged...
    #undef __kernel
    __kernel __attribute__((reqd_work_group_size(64, 1, 1)))
    void relu_offsets(__global char *b0, int o0, __global char *b1, int o1, int n)
    {
        relu((__global void *)(b0 + (size_t)o0 * 16), (__global void *)(b1 + (size_t)o1 * 16), n);
    }

The compiler puts the old kernel into the new one, so nothing is called. Only kernels may declare local memory, and PoCL
crashes if a kernel calls a kernel that does. So the new kernel declares a pool, of which the old one takes its arrays:
LOCAL and LOCAL_POOL of elements.cl are other macros then.
"""

from dataclasses import replace

from gputune.core.launches import OFFSET_BYTES, Launch, Stage, as_stage, pragmas_for

POOL_ALIGNMENT, ARRAY_ALIGNMENT = 128, 16
"""Local memory begins at a multiple of the largest vector's bytes, and each array in it at a multiple of these."""

_INLINED = """\
#define __kernel static inline __attribute__((always_inline))
#define reqd_work_group_size(...)
"""
_POOLED = f"""\
#define LOCAL_POOL , __local uchar *pool
#define LOCAL(type, name, n) __local type *const name = (__local type *)pool; \\
    pool += (sizeof(type) * (n) + {ARRAY_ALIGNMENT - 1}) / {ARRAY_ALIGNMENT} * {ARRAY_ALIGNMENT}
"""
_POOL_AT_END = "LOCAL_POOL)"
"""The end of the parameters of a kernel that takes a pool."""
_AGAIN = """
#undef __kernel
#undef reqd_work_group_size
"""


def with_offsets(launch: Launch) -> Launch:
    """Return a launch whose kernels take an offset of 0 after each buffer. It stays as it is if a kernel does not say
    what it needs, as kernels of op packages, or has local memory that it does not take by LOCAL."""
    if any(kernel.needs is None for kernel in launch.sequence):
        return launch
    pooled = any(map(_local_bytes, launch.sequence))
    if pooled and _POOL_AT_END not in launch.source:
        return launch
    *stages, main = (_taking_offsets(kernel, number) for number, kernel in enumerate(launch.sequence))
    kernels = (_text(kernel, new.entry) for kernel, new in zip(launch.sequence, (*stages, main), strict=True))
    extensions = dict.fromkeys(name for kernel in launch.sequence if kernel.needs for name in kernel.needs.extensions)
    first = pragmas_for(extensions)  # these lines stay in front
    source = launch.source.removeprefix(first)
    return replace(
        launch,
        source="".join([first, _INLINED, _POOLED if pooled else "", source, _AGAIN, *kernels]),
        source_sha256="",
        entry=main.entry,
        arguments=main.arguments,
        stages=tuple(stages),
    )


def _local_bytes(kernel: Stage | Launch) -> int:
    return kernel.needs.local_bytes if kernel.needs else 0


def _taking_offsets(kernel: Stage | Launch, number: int) -> Stage:
    pairs = ((each, 0) if isinstance(each, str) else (each,) for each in kernel.arguments)
    made = as_stage(kernel, f"{kernel.entry}_offsets{number}", "")
    return replace(made, arguments=tuple(part for pair in pairs for part in pair))


def _text(kernel: Stage | Launch, name: str) -> str:
    """Return the kernel that calls this one."""
    parameters, given = [], []
    for number, argument in enumerate(kernel.arguments):
        if isinstance(argument, str):
            parameters += [f"__global char *b{number}", f"int o{number}"]
            given.append(f"(__global void *)(b{number} + (size_t)o{number} * {OFFSET_BYTES})")
        else:
            parameters.append(f"int n{number}")
            given.append(f"n{number}")
    pool, nbytes = "", _local_bytes(kernel)
    if nbytes:
        pool = f"    __local uchar pool[{nbytes}] __attribute__((aligned({POOL_ALIGNMENT})));\n"
        given.append("pool")
    x, y, z = (*kernel.local_size, 1, 1)[:3]
    return (
        f"__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\n"
        f"void {name}({', '.join(parameters)})\n{{\n{pool}    {kernel.entry}({', '.join(given)});\n}}\n"
    )
