/* A chain of launches without Python between them. The function of OpenCL comes as a pointer, so that no header is needed:
   the library is the one that pyopencl has loaded. */
#include <stddef.h>
#include <time.h>

typedef int (*enqueue_t)(void *, void *, unsigned, const size_t *, const size_t *, const size_t *, unsigned,
                         const void *, void **);

typedef struct {
    void *kernel;
    unsigned dimensions;
    size_t global[3], local[3];
} launch_t;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Enqueues each launch once. each: takes the microseconds of single calls. Microseconds of all, or an error code below 0. */
double enqueue_all(enqueue_t enqueue, void *queue, const launch_t *launches, int count, double *each)
{
    const double start = now_us();
    double before = start;
    for (int i = 0; i < count; ++i) {
        const launch_t *one = &launches[i];
        const int code = enqueue(queue, one->kernel, one->dimensions, NULL, one->global, one->local, 0, NULL, NULL);
        if (code)
            return code;
        const double now = now_us();
        each[i] = now - before;
        before = now;
    }
    return before - start;
}
