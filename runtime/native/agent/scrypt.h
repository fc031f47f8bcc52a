/* HMAC-SHA256 (RFC 2104), PBKDF2 of one round (RFC 8018), and scrypt (RFC 7914) with N = 2^14, r = 8, p = 1. */
#ifndef GPUTUNE_SCRYPT_H
#define GPUTUNE_SCRYPT_H

#include "files/context.h"

typedef struct hmac {
    uint32_t inner[8], outer[8];
    uint8_t block[64];
    uint64_t nbytes; /* of the inner hash, the key's block included */
} hmac;

/* A copy of what has begun can be ended by itself. */
void hmac_begin(hmac *mac, const uint8_t *key, size_t key_bytes);
void hmac_add(hmac *mac, const void *data, size_t nbytes);
void hmac_end(hmac *mac, uint8_t digest[32]);

/* nbytes: a multiple of 32, and below 255 of them. */
void pbkdf2(const uint8_t *password, size_t password_bytes, const uint8_t *salt, size_t salt_bytes, uint8_t *key,
            size_t nbytes);
/* It takes 16 MiB meanwhile; false where there are none. */
bool scrypt(const uint8_t *password, size_t password_bytes, const uint8_t *salt, size_t salt_bytes, uint8_t key[32]);

#endif
