/* What libFuzzer calls: the C runtime's inflater. The first two bytes of an input say how many bytes the others are to
 * become, in memory of this size. */
#include "../../../runtime/native/src/files/reading.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const size_t nbytes = data[0] | (size_t)data[1] << 8, left = size - 2;
    uint8_t *from = malloc(left ? left : 1), *to = malloc(nbytes ? nbytes : 1);
    if (from == NULL || to == NULL) abort();
    memcpy(from, data + 2, left);
    inflate_whole((slice){from, left}, to, nbytes);
    free(from);
    free(to);
    return 0;
}
