/* Frames and scrypt of the agent, on memory that can be refused, and its keys. */
#include "frames.h"
#include "scrypt.h"

#include <stdlib.h>
#include <string.h>

static bool refused;
static size_t asked, given_pieces; /* asked: bytes of all pieces so far */

static void *given(size_t nbytes) {
    asked += nbytes;
    given_pieces += !refused;
    return refused ? NULL : malloc(nbytes);
}

static void given_back(void *memory) {
    given_pieces -= memory != NULL;
    free(memory);
}

#define malloc given
#define free given_back
#include "frames.c"
#include "scrypt.c"
#undef malloc
#undef free
#include "keys.c"

void refuse_memory(bool refuses) { refused = refuses; }
size_t asked_bytes(void) { return asked; }
size_t pieces(void) { return given_pieces; }

/* Other limits from now on, and where there is a key, MACs. */
void change_reader(frame_reader *reader, const frame_limits *limits, const uint8_t *key) {
    reader->limits = *limits;
    if (key != NULL) mac_open(reader->mac = malloc(sizeof *reader->mac), key);
}

frame_reader *new_reader(const frame_limits *limits, const uint8_t *key) {
    frame_reader *reader = malloc(sizeof *reader);
    reader_open(reader, limits);
    change_reader(reader, limits, key);
    return reader;
}

void free_reader(frame_reader *reader) {
    reader_close(reader);
    free(reader->mac);
    free(reader);
}

frame_mac *new_mac(const uint8_t *key) {
    frame_mac *mac = malloc(sizeof *mac);
    mac_open(mac, key);
    return mac;
}

void free_mac(frame_mac *mac) { free(mac); }

/* Gives a reader as many bytes as it has space for. */
size_t feed(frame_reader *reader, const uint8_t *data, size_t nbytes) {
    size_t room;
    uint8_t *space = frame_space(reader, &room);
    if (nbytes > room) nbytes = room;
    memcpy(space, data, nbytes);
    frame_arrived(reader, nbytes);
    return nbytes;
}

const frame_error *error_of(const frame_reader *reader) { return &reader->error; }
size_t room_of(frame_reader *reader) {
    size_t room;
    frame_space(reader, &room);
    return room;
}

/* The digest of a message in two pieces. */
void blake2b_of(const uint8_t *data, size_t first, size_t nbytes, const uint8_t *key, size_t key_bytes,
                uint8_t *digest, size_t digest_bytes) {
    blake2b hash;
    blake2b_begin(&hash, digest_bytes, key, key_bytes);
    blake2b_add(&hash, data, first);
    blake2b_add(&hash, data + first, nbytes - first);
    blake2b_end(&hash, digest);
}

void hmac_of(const uint8_t *data, size_t first, size_t nbytes, const uint8_t *key, size_t key_bytes,
             uint8_t digest[32]) {
    hmac mac;
    hmac_begin(&mac, key, key_bytes);
    hmac_add(&mac, data, first);
    hmac_add(&mac, data + first, nbytes - first);
    hmac_end(&mac, digest);
}
