/* Reads streams of frames as the agent reads them in a session: the hello as a stranger's, all others with MACs, and
 * larger ones after the proof. Of the memory that the reader has, only what has arrived may be read.
 *
 * A program for scripts/fuzz agent: for each stream on the standard input (four bytes each for its length and for that
 * of its pieces, and the stream) it writes how many frames were taken, a digest of them, and what ended the stream.
 * With FUZZING it is what libFuzzer calls; changed frames then have right MACs half of the time. */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sanitizer/asan_interface.h>

static const frame_limits LIMITS = {.frame_bytes = 1 << 20, .header_bytes = 1 << 12, .blobs = 8};
static const uint8_t KEY[MAC_KEY_BYTES + 1] = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";

typedef struct ending {
    uint32_t taken;
    uint8_t digest[32]; /* of the sizes and bytes of all frames that were taken */
    const char *name;
} ending;

static void add(blake2b *all, const slice *part) {
    uint8_t size[8];
    for (size_t at = 0; at < sizeof size; at++) size[at] = (uint8_t)((uint64_t)part->nbytes >> 8 * at);
    blake2b_add(all, size, sizeof size);
    blake2b_add(all, part->data, part->nbytes);
}

static size_t give(frame_reader *reader, const uint8_t *data, size_t nbytes) {
    size_t room;
    uint8_t *space = frame_space(reader, &room);
    if (room == 0) abort();
    if (nbytes > room) nbytes = room;
    ASAN_UNPOISON_MEMORY_REGION(space, room);
    memcpy(space, data, nbytes);
    frame_arrived(reader, nbytes);
    ASAN_POISON_MEMORY_REGION(space + nbytes, room - nbytes);
    return nbytes;
}

static ending read_stream(const uint8_t *data, size_t size, size_t step) {
    frame_reader *reader = malloc(sizeof *reader);
    frame_mac mac;
    frame_state state;
    frame found;
    blake2b all;
    ending end = {.name = "cut off"};
    if (reader == NULL) abort();
    reader_open(reader, &HANDSHAKE_LIMITS);
    mac_open(&mac, KEY);
    blake2b_begin(&all, sizeof end.digest, NULL, 0);
    for (;;) {
        while ((state = next_frame(reader, &found)) == FRAME_WHOLE) {
            add(&all, &found.header);
            for (size_t at = 0; at < found.blob_count; at++) add(&all, &found.blobs[at]);
            if (++end.taken == 1) reader->mac = &mac;
            else reader->limits = LIMITS;
        }
        if (state == FRAME_REFUSED || !size) break;
        const size_t given = give(reader, data, step < size ? step : size);
        data += given, size -= given;
    }
    if (state == FRAME_REFUSED) end.name = reader->error.name;
    else if (reader->have == reader->start) end.name = "whole";
    if (end.name == NULL || (state == FRAME_REFUSED && !*reader->error.message)) abort();
    blake2b_end(&all, end.digest);
    ASAN_UNPOISON_MEMORY_REGION(reader, sizeof *reader);
    reader_close(reader);
    free(reader);
    return end;
}

#ifndef FUZZING
int main(void) {
    uint32_t sizes[2]; /* of the stream and of its pieces */
    while (fread(sizes, sizeof sizes, 1, stdin)) {
        uint8_t *stream = malloc(sizes[0] ? sizes[0] : 1); /* of its size, so that its end is watched */
        if (stream == NULL || fread(stream, 1, sizes[0], stdin) != sizes[0]) return 1;
        const ending end = read_stream(stream, sizes[0], sizes[1]);
        free(stream);
        printf("%u ", end.taken);
        for (size_t at = 0; at < sizeof end.digest; at++) printf("%02x", end.digest[at]);
        printf(" %s\n", end.name);
        fflush(stdout);
    }
    return 0;
}
#else
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t number_at(const uint8_t *bytes, size_t width) {
    uint64_t number = 0;
    while (width-- > 0) number = number << 8 | bytes[width];
    return number;
}

/* Signs the frames of a stream, all but the first, as far as they are whole. */
static void sign(uint8_t *data, size_t size) {
    frame_mac mac;
    mac_open(&mac, KEY);
    for (size_t place = 0; size >= PREFIX_BYTES; place++) {
        const uint64_t count = number_at(data + 8, 4), front = PREFIX_BYTES + 8 * count + number_at(data + 4, 4);
        uint64_t nbytes = front;
        if (front > size) return;
        blake2b hash = mac.keyed;
        uint8_t digest[32], number[8] = {(uint8_t)(place - 1), (uint8_t)((place - 1) >> 8)};
        blake2b_add(&hash, number, sizeof number);
        blake2b_add(&hash, data, (size_t)front);
        for (size_t at = 0; at < count; at++) {
            const uint64_t more = number_at(data + PREFIX_BYTES + 8 * at, 8);
            if (more > size - nbytes) return;
            sha256(data + nbytes, (size_t)more, digest); /* inputs are smaller than a piece */
            if (more) blake2b_add(&hash, digest, sizeof digest);
            nbytes += more;
        }
        if (place && MAC_BYTES > size - nbytes) return;
        if (place) blake2b_end(&hash, data + nbytes);
        if (place) nbytes += MAC_BYTES;
        data += nbytes, size -= (size_t)nbytes;
    }
}

/* The first byte says how long the pieces are: a few hundred of them at most, which would take most of the time. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size) read_stream(data + 1, size - 1, *data ? *data + size / 256 : size);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    size = LLVMFuzzerMutate(data, size, most);
    if (seed % 2 && size) sign(data + 1, size - 1);
    return size;
}
#endif
