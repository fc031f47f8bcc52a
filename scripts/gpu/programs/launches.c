/* The calls of a chain of launches without Python between them. Functions of OpenCL come as pointers, so that no header is
   needed: the library is the one that pyopencl has loaded. */
#include <stddef.h>
#include <time.h>

typedef int (*enqueue_t)(void *, void *, unsigned, const size_t *, const size_t *, const size_t *, unsigned,
                         const void *, void **);
typedef int (*call_t)(void *);

typedef struct {
    enqueue_t enqueue;
    call_t release, flush;
} functions_t;

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

/* Enqueues each launch once; with an event that is released at once where `events` is set, without the local size where
   `sizeless` is, and with a flush after every `flush_each` of them where that is not 0. each: takes the microseconds of
   single calls where it is not NULL. Microseconds of the loop, or an error code below 0. */
double enqueue_all(const functions_t *f, void *queue, const launch_t *launches, int count, int events, int sizeless,
                   int flush_each, double *each)
{
    const double start = now_us();
    double before = start;
    for (int i = 0; i < count; ++i) {
        const launch_t *one = &launches[i];
        void *event = NULL;
        const int code = f->enqueue(queue, one->kernel, one->dimensions, NULL, one->global, sizeless ? NULL : one->local, 0,
                                    NULL, events ? &event : NULL);
        if (code)
            return code;
        if (event)
            f->release(event);
        if (flush_each && (i + 1) % flush_each == 0)
            f->flush(queue);
        if (each) {
            const double now = now_us();
            each[i] = now - before;
            before = now;
        }
    }
    return now_us() - start;
}
