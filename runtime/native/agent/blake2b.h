/* BLAKE2b (RFC 7693), keyed or not. */
#ifndef GPUTUNE_BLAKE2B_H
#define GPUTUNE_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

enum { BLAKE2B_BLOCK_BYTES = 128, BLAKE2B_MOST_BYTES = 64 }; /* most: of a digest, and of a key */

typedef struct blake2b {
    uint64_t state[8], nbytes;
    uint8_t block[BLAKE2B_BLOCK_BYTES];
    size_t held, digest_bytes;
} blake2b;

/* A copy of what has begun can be ended by itself: a key is then prepared once for many messages. */
void blake2b_begin(blake2b *hash, size_t digest_bytes, const uint8_t *key, size_t key_bytes);
void blake2b_add(blake2b *hash, const uint8_t *data, size_t nbytes);
void blake2b_end(blake2b *hash, uint8_t *digest);

#endif
