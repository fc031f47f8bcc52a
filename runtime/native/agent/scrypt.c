/* scrypt (RFC 7914): guesses at a token are slow, because each takes 16 MiB of memory. */
#include "scrypt.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 1 << 14, BLOCKS = 16, BLOCK_WORDS = 16, WORDS = BLOCKS * BLOCK_WORDS }; /* BLOCKS: 2 r */

/* --- HMAC and PBKDF2 ---------------------------------------------------------------------------------------------- */

void hmac_begin(hmac *mac, const uint8_t *key, size_t key_bytes) {
    uint8_t padded[64] = {0};
    if (key_bytes > sizeof padded) sha256(key, key_bytes, padded);
    else if (key_bytes) memcpy(padded, key, key_bytes);
    for (size_t at = 0; at < sizeof padded; at++) padded[at] ^= 0x36;
    sha256_begin(mac->inner);
    sha256_add(mac->inner, padded, sizeof padded);
    for (size_t at = 0; at < sizeof padded; at++) padded[at] ^= 0x36 ^ 0x5c;
    sha256_begin(mac->outer);
    sha256_add(mac->outer, padded, sizeof padded);
    mac->nbytes = sizeof padded;
}

void hmac_add(hmac *mac, const void *data, size_t nbytes) {
    for (const uint8_t *from = data; nbytes;) {
        const size_t held = mac->nbytes % 64, taken = nbytes < 64 - held ? nbytes : 64 - held;
        memcpy(mac->block + held, from, taken);
        if (held + taken == 64) sha256_add(mac->inner, mac->block, 64);
        mac->nbytes += taken, from += taken, nbytes -= taken;
    }
}

void hmac_end(hmac *mac, uint8_t digest[32]) {
    sha256_end(mac->inner, mac->block, mac->nbytes % 64, mac->nbytes, digest);
    sha256_end(mac->outer, digest, 32, 64 + 32, digest);
}

void pbkdf2(const uint8_t *password, size_t password_bytes, const uint8_t *salt, size_t salt_bytes, uint8_t *key,
            size_t nbytes) {
    hmac salted;
    hmac_begin(&salted, password, password_bytes);
    hmac_add(&salted, salt, salt_bytes);
    for (uint8_t number = 1; nbytes; number++, key += 32, nbytes -= 32) {
        const uint8_t counted[4] = {0, 0, 0, number};
        hmac block = salted;
        hmac_add(&block, counted, sizeof counted);
        hmac_end(&block, key);
    }
}

/* --- scrypt ------------------------------------------------------------------------------------------------------- */

static uint32_t turned(uint32_t value, int bits) { return value << bits | value >> (32 - bits); }

static void quarter(uint32_t *words, int a, int b, int c, int d) {
    words[b] ^= turned(words[a] + words[d], 7);
    words[c] ^= turned(words[b] + words[a], 9);
    words[d] ^= turned(words[c] + words[b], 13);
    words[a] ^= turned(words[d] + words[c], 18);
}

static void salsa20_8(uint32_t block[BLOCK_WORDS]) {
    uint32_t words[BLOCK_WORDS];
    memcpy(words, block, sizeof words);
    for (int round = 0; round < 4; round++) {
        for (int at = 0; at < 4; at++) /* columns from the diagonal down, and rows from it to the right */
            quarter(words, 5 * at, (5 * at + 4) % 16, (5 * at + 8) % 16, (5 * at + 12) % 16);
        for (int at = 0; at < 4; at++)
            quarter(words, 5 * at, 4 * at + (at + 1) % 4, 4 * at + (at + 2) % 4, 4 * at + (at + 3) % 4);
    }
    for (int at = 0; at < BLOCK_WORDS; at++) block[at] += words[at];
}

/* Mixes all blocks; those of even places come before those of odd ones then. */
static void mix_blocks(uint32_t words[WORDS]) {
    uint32_t last[BLOCK_WORDS], mixed[WORDS];
    memcpy(last, words + WORDS - BLOCK_WORDS, sizeof last);
    for (int block = 0; block < BLOCKS; block++) {
        for (int at = 0; at < BLOCK_WORDS; at++) last[at] ^= words[block * BLOCK_WORDS + at];
        salsa20_8(last);
        memcpy(mixed + (block / 2 + block % 2 * BLOCKS / 2) * BLOCK_WORDS, last, sizeof last);
    }
    memcpy(words, mixed, sizeof mixed);
}

bool scrypt(const uint8_t *password, size_t password_bytes, const uint8_t *salt, size_t salt_bytes, uint8_t key[32]) {
    uint32_t words[WORDS], *memory = malloc(STEPS * sizeof words);
    uint8_t bytes[sizeof words];
    if (memory == NULL) return false;
    pbkdf2(password, password_bytes, salt, salt_bytes, bytes, sizeof bytes);
    for (size_t at = 0; at < WORDS; at++)
        words[at] = (uint32_t)bytes[4 * at] | (uint32_t)bytes[4 * at + 1] << 8 | (uint32_t)bytes[4 * at + 2] << 16 |
                    (uint32_t)bytes[4 * at + 3] << 24;
    for (size_t step = 0; step < STEPS; step++) {
        memcpy(memory + step * WORDS, words, sizeof words);
        mix_blocks(words);
    }
    for (size_t step = 0; step < STEPS; step++) {
        const uint32_t *chosen = memory + words[WORDS - BLOCK_WORDS] % STEPS * (size_t)WORDS;
        for (size_t at = 0; at < WORDS; at++) words[at] ^= chosen[at];
        mix_blocks(words);
    }
    free(memory);
    for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = (uint8_t)(words[at / 4] >> 8 * (at % 4));
    pbkdf2(password, password_bytes, bytes, sizeof bytes, key, 32);
    return true;
}
