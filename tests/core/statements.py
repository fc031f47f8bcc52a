"""Write statements of inline assembly for tests."""

CONVERT = '__asm__ volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x))'
FENCE = '__asm__ volatile("fence.acq_rel.gpu;" ::: "memory")'
KERNEL = "__kernel void f(__global float *y) { y[0] = 1.0f; }\n"


def written(statement: str) -> str:
    """Return a statement of core.assembly.STATEMENTS as a source has it."""
    return f"__asm__ volatile({statement.replace('()', '(x)')})"
