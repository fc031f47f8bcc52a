/* The calls of a chain of launches without Python between them. Functions of OpenCL come as pointers, so that no header is
   needed: the library is the one that pyopencl has loaded. */
#include <stddef.h>
#include <time.h>

typedef int (*enqueue_t)(void *, void *, unsigned, const size_t *, const size_t *, const size_t *, unsigned,
                         const void *, void **);
typedef int (*release_t)(void *);

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Enqueues each kernel once; with an event that is released at once, or with none. Microseconds of the loop, or an error
   code below 0. */
double enqueue_all(enqueue_t enqueue, release_t release, void *queue, void **kernels, int count, size_t global,
                   size_t local, int events)
{
    const double start = now_us();
    for (int i = 0; i < count; ++i) {
        void *event = NULL;
        const int code = enqueue(queue, kernels[i], 1, NULL, &global, &local, 0, NULL, events ? &event : NULL);
        if (code)
            return code;
        if (event)
            release(event);
    }
    return now_us() - start;
}
