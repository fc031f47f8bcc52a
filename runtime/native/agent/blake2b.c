/* BLAKE2b (RFC 7693). */
#include "blake2b.h"

#include <string.h>

static const uint64_t FIRST[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static const uint8_t ORDER[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint64_t turned(uint64_t value, int bits) { return value >> bits | value << (64 - bits); }

static void mix(uint64_t *work, int a, int b, int c, int d, uint64_t one, uint64_t other) {
    work[a] += work[b] + one;
    work[d] = turned(work[d] ^ work[a], 32);
    work[c] += work[d];
    work[b] = turned(work[b] ^ work[c], 24);
    work[a] += work[b] + other;
    work[d] = turned(work[d] ^ work[a], 16);
    work[c] += work[d];
    work[b] = turned(work[b] ^ work[c], 63);
}

static void add_block(blake2b *hash, const uint8_t *data, size_t nbytes, uint64_t last) {
    uint64_t words[16], work[16];
    hash->nbytes += nbytes;
    for (size_t at = 0; at < 16; at++) {
        words[at] = 0;
        for (size_t byte = 8; byte-- > 0;) words[at] = words[at] << 8 | data[8 * at + byte];
        work[at] = at < 8 ? hash->state[at] : FIRST[at - 8];
    }
    work[12] ^= hash->nbytes; /* its upper half stays 0: no message has 2^64 bytes */
    work[14] ^= last;
    for (size_t round = 0; round < 12; round++) {
        const uint8_t *order = ORDER[round % 10];
        for (int at = 0; at < 4; at++)
            mix(work, at, at + 4, at + 8, at + 12, words[order[2 * at]], words[order[2 * at + 1]]);
        for (int at = 0; at < 4; at++)
            mix(work, at, 4 + (at + 1) % 4, 8 + (at + 2) % 4, 12 + (at + 3) % 4, words[order[2 * at + 8]],
                words[order[2 * at + 9]]);
    }
    for (size_t at = 0; at < 8; at++) hash->state[at] ^= work[at] ^ work[at + 8];
}

void blake2b_begin(blake2b *hash, size_t digest_bytes, const uint8_t *key, size_t key_bytes) {
    *hash = (blake2b){.digest_bytes = digest_bytes};
    memcpy(hash->state, FIRST, sizeof FIRST);
    hash->state[0] ^= 0x01010000 ^ key_bytes << 8 ^ digest_bytes;
    if (key_bytes) {
        memcpy(hash->block, key, key_bytes);
        hash->held = BLAKE2B_BLOCK_BYTES;
    }
}

/* The last block is marked, so a whole one is held until more follows. */
void blake2b_add(blake2b *hash, const uint8_t *data, size_t nbytes) {
    while (nbytes) {
        if (hash->held == BLAKE2B_BLOCK_BYTES) {
            add_block(hash, hash->block, BLAKE2B_BLOCK_BYTES, 0);
            hash->held = 0;
        }
        const size_t room = BLAKE2B_BLOCK_BYTES - hash->held, taken = nbytes < room ? nbytes : room;
        memcpy(hash->block + hash->held, data, taken);
        hash->held += taken, data += taken, nbytes -= taken;
    }
}

void blake2b_end(blake2b *hash, uint8_t *digest) {
    memset(hash->block + hash->held, 0, BLAKE2B_BLOCK_BYTES - hash->held);
    add_block(hash, hash->block, hash->held, ~(uint64_t)0);
    for (size_t at = 0; at < hash->digest_bytes; at++) digest[at] = (uint8_t)(hash->state[at / 8] >> 8 * (at % 8));
}
