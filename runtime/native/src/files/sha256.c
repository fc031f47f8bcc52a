/* SHA-256 (FIPS 180-4). */
#include "context.h"

#include <string.h>

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t value, int bits) { return value >> bits | value << (32 - bits); }

/* Which variable is which letter moves on with each step, so that none has to be copied. */
#define STEP(a, b, c, d, e, f, g, h, at)                                                                               \
    h += (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + ROUND[at] + words[at];                \
    d += h;                                                                                                            \
    h += (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));

static void add_block(uint32_t state[8], const uint8_t *data) {
    uint32_t words[64];
    for (int at = 0; at < 16; at++)
        words[at] = (uint32_t)data[4 * at] << 24 | (uint32_t)data[4 * at + 1] << 16 | (uint32_t)data[4 * at + 2] << 8 |
                    data[4 * at + 3];
    for (int at = 16; at < 64; at++) {
        uint32_t near = words[at - 2], far = words[at - 15];
        words[at] = (turned(near, 17) ^ turned(near, 19) ^ near >> 10) + words[at - 7] +
                    (turned(far, 7) ^ turned(far, 18) ^ far >> 3) + words[at - 16];
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int at = 0; at < 64; at += 8) {
        STEP(a, b, c, d, e, f, g, h, at)
        STEP(h, a, b, c, d, e, f, g, at + 1)
        STEP(g, h, a, b, c, d, e, f, at + 2)
        STEP(f, g, h, a, b, c, d, e, at + 3)
        STEP(e, f, g, h, a, b, c, d, at + 4)
        STEP(d, e, f, g, h, a, b, c, at + 5)
        STEP(c, d, e, f, g, h, a, b, at + 6)
        STEP(b, c, d, e, f, g, h, a, at + 7)
    }
    const uint32_t now[8] = {a, b, c, d, e, f, g, h};
    for (int at = 0; at < 8; at++) state[at] += now[at];
}

/* Processors that have it in hardware, without which the checksums of weights would take most of a load: so many blocks
 * by steps of four rounds. Each takes four words, in whose place it leaves those for four steps later. */
#if defined(__GNUC__) && defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

static bool in_hardware(void) {
    static int known; /* 1: no, 2: yes; asking takes microseconds in a virtual machine */
    int found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    unsigned a, b = 0, c, d;
    if (!found) found = 1 + (__get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1); /* these have SSE 4.1, too */
    __atomic_store_n(&known, found, __ATOMIC_RELAXED);
    return found == 2;
}

__attribute__((target("sha,sse4.1"))) static void add_blocks(uint32_t state[8], const uint8_t *data, size_t count) {
    const __m128i swapped = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef = _mm_set_epi32((int)state[0], (int)state[1], (int)state[4], (int)state[5]);
    __m128i cdgh = _mm_set_epi32((int)state[2], (int)state[3], (int)state[6], (int)state[7]), words[4];
    for (; count; count--, data += 64) {
        const __m128i first = abef, second = cdgh;
        for (int at = 0; at < 4; at++)
            words[at] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(data + 16 * at)), swapped);
#pragma GCC unroll 16
        for (int at = 0; at < 16; at++) {
            __m128i *own = &words[at % 4], next = words[(at + 1) % 4], last = words[(at + 3) % 4];
            __m128i sum = _mm_add_epi32(*own, _mm_loadu_si128((const __m128i *)(const void *)(ROUND + 4 * at)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
            sum = _mm_add_epi32(_mm_sha256msg1_epu32(*own, next), _mm_alignr_epi8(last, words[(at + 2) % 4], 4));
            *own = _mm_sha256msg2_epu32(sum, last);
        }
        abef = _mm_add_epi32(abef, first);
        cdgh = _mm_add_epi32(cdgh, second);
    }
    uint32_t left[4], right[4];
    _mm_storeu_si128((__m128i *)(void *)left, abef);
    _mm_storeu_si128((__m128i *)(void *)right, cdgh);
    const uint32_t now[8] = {left[3], left[2], right[3], right[2], left[1], left[0], right[1], right[0]};
    memcpy(state, now, sizeof now);
}
#elif defined(__GNUC__) && defined(__aarch64__) && defined(__linux__)
#include <arm_neon.h>
#include <sys/auxv.h>

static bool in_hardware(void) { return getauxval(AT_HWCAP) >> 6 & 1; }

#ifdef __clang__
__attribute__((target("sha2")))
#else
__attribute__((target("+crypto")))
#endif
static void add_blocks(uint32_t state[8], const uint8_t *data, size_t count) {
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4), words[4];
    for (; count; count--, data += 64) {
        const uint32x4_t first = abcd, second = efgh;
        for (int at = 0; at < 4; at++) words[at] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * at)));
#pragma GCC unroll 16
        for (int at = 0; at < 16; at++) {
            uint32x4_t *own = &words[at % 4], sum = vaddq_u32(*own, vld1q_u32(ROUND + 4 * at)), before = abcd;
            abcd = vsha256hq_u32(abcd, efgh, sum);
            efgh = vsha256h2q_u32(efgh, before, sum);
            const uint32x4_t first = vsha256su0q_u32(*own, words[(at + 1) % 4]);
            *own = vsha256su1q_u32(first, words[(at + 2) % 4], words[(at + 3) % 4]);
        }
        abcd = vaddq_u32(abcd, first);
        efgh = vaddq_u32(efgh, second);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}
#else
static bool in_hardware(void) { return false; }

static void add_blocks(uint32_t state[8], const uint8_t *data, size_t count) {
    for (size_t at = 0; at < count; at++) add_block(state, data + 64 * at);
}
#endif

void sha256_begin(uint32_t state[8]) {
    static const uint32_t FIRST[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(state, FIRST, sizeof FIRST);
}

void sha256_add(uint32_t state[8], const uint8_t *blocks, size_t nbytes) {
    if (in_hardware()) add_blocks(state, blocks, nbytes / 64);
    else
        for (size_t at = 0; at < nbytes; at += 64) add_block(state, blocks + at);
}

void sha256_end(uint32_t state[8], const uint8_t *rest, size_t left, uint64_t nbytes, uint8_t digest[32]) {
    size_t whole = left / 64 * 64, last = left - whole < 56 ? 64 : 128;
    uint8_t end[128] = {0};
    sha256_add(state, rest, whole);
    if (left > whole) memcpy(end, rest + whole, left - whole);
    end[left - whole] = 0x80;
    for (size_t at = 0; at < 8; at++) end[last - 1 - at] = (uint8_t)(nbytes * 8 >> 8 * at);
    for (size_t at = 0; at < last; at += 64) add_block(state, end + at);
    for (size_t at = 0; at < 32; at++) digest[at] = (uint8_t)(state[at / 4] >> (24 - 8 * (at % 4)));
}

void sha256(const uint8_t *data, size_t nbytes, uint8_t digest[32]) {
    uint32_t state[8];
    sha256_begin(state);
    sha256_end(state, data, nbytes, nbytes, digest);
}

void hex(const uint8_t digest[32], char text[65]) {
    for (size_t at = 0; at < 64; at++) text[at] = "0123456789abcdef"[digest[at / 2] >> (at % 2 ? 0 : 4) & 15];
    text[64] = 0;
}
