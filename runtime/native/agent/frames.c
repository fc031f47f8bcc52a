/* Frames of the protocol, read and written. */
#include "frames.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { AT_ONCE = 16 }; /* parts of one writev, as every system takes them */

const frame_limits HANDSHAKE_LIMITS = {.frame_bytes = 4 << 10, .header_bytes = 4 << 10};

static const char MAGIC[] = "gpt1", MAC_MAGIC[] = "gptm";

static uint64_t number_at(const uint8_t *bytes, size_t width) {
    uint64_t number = 0;
    while (width-- > 0) number = number << 8 | bytes[width];
    return number;
}

static void put_number(uint8_t *bytes, uint64_t number, size_t width) {
    for (size_t at = 0; at < width; at++) bytes[at] = (uint8_t)(number >> 8 * at);
}

/* --- errors and MACs ---------------------------------------------------------------------------------------------- */

static bool fails(frame_error *error, const char *name, const char *message) {
    *error = (frame_error){.name = name};
    snprintf(error->message, sizeof error->message, "%s", message);
    return false;
}

static const char *reason(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK ? "the other side was silent for too long" : strerror(errno);
}

static bool allows(frame_error *error, const char *limit, const char *words, uint64_t allowed, uint64_t got) {
    if (got <= allowed) return true;
    *error = (frame_error){.name = "limit_exceeded", .limit = limit, .allowed = allowed, .got = got};
    snprintf(error->message, sizeof error->message, "a frame has %s: %llu, the server's limit %s is %llu", words,
             (unsigned long long)got, limit, (unsigned long long)allowed);
    return false;
}

static bool sizes_allowed(frame_error *error, const frame_limits *limits, uint64_t blobs, uint64_t header_bytes,
                          uint64_t frame_bytes) {
    return allows(error, "blobs", "blobs", limits->blobs < MOST_BLOBS ? limits->blobs : MOST_BLOBS, blobs) &&
           allows(error, "header_bytes", "header bytes", limits->header_bytes, header_bytes) &&
           allows(error, "frame_bytes", "frame bytes", limits->frame_bytes, frame_bytes);
}

void mac_open(frame_mac *mac, const uint8_t key[MAC_KEY_BYTES]) {
    blake2b_begin(&mac->keyed, MAC_BYTES, key, MAC_KEY_BYTES);
    mac->number = 0;
}

static blake2b mac_begin(frame_mac *mac) {
    blake2b hash = mac->keyed;
    uint8_t number[8];
    put_number(number, mac->number++, sizeof number);
    blake2b_add(&hash, number, sizeof number);
    return hash;
}

static void add_piece(blake2b *hash, const uint8_t *data, size_t nbytes) {
    uint8_t digest[32];
    sha256(data, nbytes, digest);
    blake2b_add(hash, digest, sizeof digest);
}

bool same_mac(const uint8_t one[MAC_BYTES], const uint8_t other[MAC_BYTES]) {
    volatile uint8_t different = 0; /* so that no compiler ends the loop early */
    for (size_t at = 0; at < MAC_BYTES; at++) different = (uint8_t)(different | (one[at] ^ other[at]));
    return !different;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

void reader_open(frame_reader *reader, const frame_limits *limits) {
    memset(reader, 0, sizeof *reader);
    reader->limits = *limits;
    reader->memory = reader->staging;
}

static void forget(frame_reader *reader) {
    if (reader->memory != reader->staging) {
        free(reader->memory); /* it had this frame alone */
        reader->memory = reader->staging;
        reader->start = reader->have = 0;
    } else {
        reader->start += reader->needed;
    }
    reader->nbytes = 0;
    reader->found = false;
}

void reader_close(frame_reader *reader) {
    if (reader->memory != reader->staging) free(reader->memory);
    reader->memory = reader->staging;
    reader->refused = true;
}

uint8_t *frame_space(frame_reader *reader, size_t *room) {
    *room = (reader->memory == reader->staging ? STAGING_BYTES : reader->needed) - reader->have;
    return reader->memory + reader->have;
}

void frame_arrived(frame_reader *reader, size_t nbytes) { reader->have += nbytes; }

/* Whether so many bytes of the frame are there; else there will be space for them. */
static bool has(frame_reader *reader, size_t nbytes, frame_state *state) {
    const size_t arrived = reader->have - reader->start;
    reader->needed = nbytes;
    if (arrived >= nbytes) return true;
    uint8_t *into = reader->memory;
    if (nbytes > STAGING_BYTES && into == reader->staging)
        into = malloc((size_t)reader->limits.frame_bytes + MAC_BYTES);
    *state = into == NULL ? FRAME_REFUSED : FRAME_PART;
    if (into == NULL) return fails(&reader->error, "limit_exceeded", "there is no memory for a frame of this size");
    if (reader->start || into != reader->memory) memmove(into, reader->memory + reader->start, arrived);
    reader->memory = into;
    reader->start = 0;
    reader->have = arrived;
    return false;
}

/* Whether all before the blobs is there, and may be so large; then the frame's size is known. */
static bool read_front(frame_reader *reader, frame_state *state) {
    const size_t arrived = reader->have - reader->start;
    const char *magic = reader->mac == NULL ? MAGIC : MAC_MAGIC;
    *state = FRAME_REFUSED;
    if (memcmp(reader->memory + reader->start, magic, arrived < 4 ? arrived : 4))
        return fails(&reader->error, "bad_frame", reader->mac == NULL ? "expected a frame starting with gpt1"
                                                                      : "expected a frame starting with gptm");
    if (!has(reader, PREFIX_BYTES, state)) return false;
    const uint8_t *bytes = reader->memory + reader->start;
    const uint64_t header_bytes = number_at(bytes + 4, 4), count = number_at(bytes + 8, 4);
    const uint64_t front_bytes = PREFIX_BYTES + 8 * count + header_bytes;
    if (!sizes_allowed(&reader->error, &reader->limits, count, header_bytes, front_bytes)) return false;
    if (!header_bytes) return fails(&reader->error, "bad_frame", "a frame without a header");
    if (!has(reader, (size_t)front_bytes, state)) return false;
    uint64_t nbytes = front_bytes;
    bytes = reader->memory + reader->start;
    for (size_t at = 0; at < count; at++) {
        const uint64_t more = number_at(bytes + PREFIX_BYTES + 8 * at, 8);
        nbytes = more > INT64_MAX - nbytes ? INT64_MAX : nbytes + more; /* at most what a reply about it can hold */
    }
    if (!sizes_allowed(&reader->error, &reader->limits, count, header_bytes, nbytes)) return false;
    reader->nbytes = (size_t)nbytes;
    reader->hashed = reader->blob_end = reader->front_bytes = (size_t)front_bytes;
    reader->blob = 0;
    if (reader->mac == NULL) return true;
    reader->hash = mac_begin(reader->mac);
    blake2b_add(&reader->hash, bytes, reader->front_bytes);
    return true;
}

/* Hashes pieces of blobs as they become whole, while more is on its way. */
static void hash_pieces(frame_reader *reader) {
    const uint8_t *bytes = reader->memory + reader->start;
    while (reader->hashed < reader->nbytes) {
        const size_t left = reader->blob_end - reader->hashed, piece = left < PIECE_BYTES ? left : PIECE_BYTES;
        if (piece > reader->have - reader->start - reader->hashed) return;
        if (piece) add_piece(&reader->hash, bytes + reader->hashed, piece);
        else reader->blob_end += (size_t)number_at(bytes + PREFIX_BYTES + 8 * reader->blob++, 8);
        reader->hashed += piece;
    }
}

frame_state next_frame(frame_reader *reader, frame *found) {
    frame_state state = FRAME_REFUSED;
    uint8_t mac[MAC_BYTES];
    if (reader->refused) return FRAME_REFUSED;
    if (reader->found) forget(reader);
    if (reader->nbytes || read_front(reader, &state)) {
        if (reader->mac != NULL) hash_pieces(reader);
        if (has(reader, reader->nbytes + (reader->mac == NULL ? 0 : MAC_BYTES), &state)) state = FRAME_WHOLE;
    }
    const uint8_t *bytes = reader->memory + reader->start;
    if (state == FRAME_WHOLE && reader->mac != NULL) {
        blake2b_end(&reader->hash, mac);
        if (!same_mac(mac, bytes + reader->nbytes)) {
            fails(&reader->error, "bad_mac", "a frame was changed, repeated, left out or put in on the way");
            state = FRAME_REFUSED;
        }
    }
    reader->refused = state == FRAME_REFUSED;
    if (state != FRAME_WHOLE) return state;
    const size_t count = (size_t)number_at(bytes + 8, 4), header = PREFIX_BYTES + 8 * count;
    const uint8_t *blob = bytes + reader->front_bytes;
    for (size_t at = 0; at < count; blob += reader->blobs[at++].nbytes)
        reader->blobs[at] = (slice){blob, (size_t)number_at(bytes + PREFIX_BYTES + 8 * at, 8)};
    *found = (frame){{bytes + header, reader->front_bytes - header}, reader->blobs, count};
    reader->found = true;
    return FRAME_WHOLE;
}

frame_state read_frame(frame_reader *reader, int descriptor, frame *found) {
    frame_state state;
    while ((state = next_frame(reader, found)) == FRAME_PART) {
        size_t room;
        uint8_t *space = frame_space(reader, &room);
        const ssize_t got = read(descriptor, space, room);
        if (got > 0) frame_arrived(reader, (size_t)got);
        else if (got == 0 && reader->have == reader->start) return FRAME_ENDED;
        else if (got == 0 || errno != EINTR) {
            reader->refused = true;
            fails(&reader->error, NULL, got == 0 ? "the connection was closed within a frame" : reason());
        }
    }
    return state;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static bool write_parts(int descriptor, struct iovec *parts, size_t count, frame_error *error) {
    for (size_t at = 0; at < count;) {
        const size_t most = count - at < AT_ONCE ? count - at : AT_ONCE;
        const ssize_t sent = writev(descriptor, parts + at, (int)most);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return fails(error, NULL, reason());
        size_t left = (size_t)sent;
        for (; at < count && left >= parts[at].iov_len; at++) left -= parts[at].iov_len; /* empty parts, too */
        if (at == count) break;
        parts[at].iov_base = (uint8_t *)parts[at].iov_base + left;
        parts[at].iov_len -= left;
    }
    return true;
}

bool write_frame(int descriptor, frame_mac *mac, const frame_limits *limits, const frame *sent, frame_error *error) {
    uint8_t front[PREFIX_BYTES + 8 * MOST_BLOBS], end[MAC_BYTES];
    struct iovec parts[MOST_BLOBS + 3];
    const size_t count = sent->blob_count, front_bytes = PREFIX_BYTES + 8 * count;
    uint64_t nbytes = front_bytes + sent->header.nbytes;
    for (size_t at = 0; at < count; at++) nbytes += sent->blobs[at].nbytes;
    if (!sizes_allowed(error, limits, count, sent->header.nbytes, nbytes)) return false;
    memcpy(front, mac == NULL ? MAGIC : MAC_MAGIC, 4);
    put_number(front + 4, sent->header.nbytes, 4);
    put_number(front + 8, count, 4);
    parts[0] = (struct iovec){front, front_bytes};
    parts[1] = (struct iovec){(void *)(uintptr_t)sent->header.data, sent->header.nbytes};
    for (size_t at = 0; at < count; at++) {
        put_number(front + PREFIX_BYTES + 8 * at, sent->blobs[at].nbytes, 8);
        parts[at + 2] = (struct iovec){(void *)(uintptr_t)sent->blobs[at].data, sent->blobs[at].nbytes};
    }
    parts[count + 2] = (struct iovec){end, mac == NULL ? 0 : MAC_BYTES};
    if (mac != NULL) {
        blake2b hash = mac_begin(mac);
        blake2b_add(&hash, front, front_bytes);
        blake2b_add(&hash, sent->header.data, sent->header.nbytes);
        for (size_t at = 0; at < count; at++)
            for (size_t done = 0, piece; done < sent->blobs[at].nbytes; done += piece) {
                const size_t left = sent->blobs[at].nbytes - done;
                piece = left < PIECE_BYTES ? left : PIECE_BYTES;
                add_piece(&hash, sent->blobs[at].data + done, piece);
            }
        blake2b_end(&hash, end);
    }
    return write_parts(descriptor, parts, count + 3, error);
}
