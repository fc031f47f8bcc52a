/* Enqueues launches one behind the other, as a loop in Python does, for a tenth of its time and without events.
 * gputune builds this file on its own (runtime/native/building.py); it is linked with nothing and given the function. */
#include <stddef.h>
#include <stdint.h>

typedef int32_t enqueue_kernel(void *queue, void *kernel, uint32_t dimensions, const size_t *offset,
                               const size_t *global_size, const size_t *local_size, uint32_t waits,
                               const void *wait_list, void *event); /* clEnqueueNDRangeKernel */

struct launch { /* as in runtime/queues/loop.py */
    void *kernel;
    size_t dimensions, global_size[3], local_size[3];
};

/* Returns the error code of the first launch that fails, and enqueues no others then. */
__attribute__((visibility("default")))
int32_t gputune_enqueue(enqueue_kernel *enqueue, void *queue, const struct launch *launches, size_t count) {
    int32_t code = 0;
    for (const struct launch *one = launches; one < launches + count && !code; one++)
        code = enqueue(queue, one->kernel, (uint32_t)one->dimensions, NULL, one->global_size, one->local_size, 0, NULL,
                       NULL);
    return code;
}
