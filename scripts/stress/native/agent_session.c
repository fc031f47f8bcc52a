/* What libFuzzer calls for scripts/fuzz agent: answers requests as a session does after the proof, on the device of
 * tests/native/fake_opencl.c. An input is a series of messages: two bytes for the length of the header, one for the
 * number of blobs and two for the length of each, then header and blobs. Each lies in memory of exactly its size. */
#include "session.c"

#include <fcntl.h>

enum { MOST_LAUNCHES = 256, MOST_BYTES = 1 << 16, MOST_FUZZED_BLOBS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static session served;

static void begin(void) {
    served.descriptor = open("/dev/null", O_WRONLY);
    served.limits = LIMITS;
    if (served.descriptor < 0) abort();
}

/* Whether a request would only take long: the numbers that it has are as large as a driver allows. */
static bool is_large(const message *asked) {
    if (asked->kind == ALLOCATE_MESSAGE) return ((const allocate_message *)asked->row)->nbytes > MOST_BYTES;
    if (asked->kind != TIME_PASS_MESSAGE) return false;
    const time_pass_message *const pass = asked->row;
    for (size_t i = 0; i < pass->batches_count; i++)
        if (pass->batches[i].launches > MOST_LAUNCHES || pass->batches[i].bounds_count > MOST_LAUNCHES) return true;
    return pass->batches_count > MOST_LAUNCHES;
}

/* Whether a request leaves the machine's files and clocks alone. */
static bool is_allowed(const message *asked) {
    return asked->kind != READ_FILES_MESSAGE && asked->kind != SET_VOTES_MESSAGE && !is_large(asked);
}

static void hear_one(const frame *frame) {
    gputune_error error;
    message asked;
    reader reader = {.pool = &served.pool, .error = &error, .path = "a message", .malformed = GPUTUNE_INVALID_ARGUMENT};
    const bool read = take_message(&reader, frame, LIST_DEVICES_MESSAGE, VOTE_MESSAGE, &asked);
    pool_free(&reader.scratch);
    if (read && is_allowed(&asked) && !answer(&served, &asked) && !served.outgoing.failed) abort();
    pool_free(&served.pool);
}

static size_t take_size(const uint8_t **data, size_t *size, size_t width) {
    size_t number = 0;
    for (size_t i = 0; i < width && *size; i++, ++*data, --*size) number |= (size_t)**data << 8 * i;
    return number;
}

static slice take_part(const uint8_t **data, size_t *size, size_t nbytes) {
    if (nbytes > *size) nbytes = *size;
    uint8_t *const copy = malloc(nbytes ? nbytes : 1);
    if (!copy) abort();
    if (nbytes) memcpy(copy, *data, nbytes);
    *data += nbytes, *size -= nbytes;
    return (slice){copy, nbytes};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!served.limits.frame_bytes) begin();
    while (size) {
        slice parts[1 + MOST_FUZZED_BLOBS];
        size_t lengths[1 + MOST_FUZZED_BLOBS];
        lengths[0] = take_size(&data, &size, 2);
        const size_t blobs = take_size(&data, &size, 1) % (MOST_FUZZED_BLOBS + 1);
        for (size_t i = 1; i <= blobs; i++) lengths[i] = take_size(&data, &size, 2);
        for (size_t i = 0; i <= blobs; i++) parts[i] = take_part(&data, &size, lengths[i]);
        hear_one(&(frame){parts[0], parts + 1, blobs});
        for (size_t i = 0; i <= blobs; i++) free((void *)(uintptr_t)parts[i].data);
    }
    gputune_error error;
    contents_message reply = {NULL, 0};
    if (served.profile) end_profile(&served, NULL, &reply, &error);
    free(served.contents);
    served.contents = NULL;
    pool_free(&served.pool);
    if (served.device) forget_all(&served);
    return 0;
}
