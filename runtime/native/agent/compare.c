/* What lies in buffers and in the guards around it. runtime/backends/answers.py has the same rules. */
#include "session.h"

#include <math.h>
#include <string.h>

enum { POISON = 0xff };
#define POLYNOMIAL 0xedb88320u /* of zlib's CRC-32, its bits in reverse */

static uint32_t crc32(const uint8_t *data, size_t nbytes) {
    static uint32_t table[256];
    for (uint32_t i = 0; i < 256 && !table[255]; i++) {
        uint32_t rest = i;
        for (int bit = 0; bit < 8; bit++) rest = rest >> 1 ^ (rest & 1 ? POLYNOMIAL : 0);
        table[i] = rest;
    }
    uint32_t sum = ~0u;
    for (size_t i = 0; i < nbytes; i++) sum = sum >> 8 ^ table[(sum ^ data[i]) & 255];
    return ~sum;
}

/* Counts what has changed in a guard, and says how far its nearest change is; step: 1 or -1, away from the buffer. */
static uint64_t changed(const uint8_t *nearest, ptrdiff_t step, size_t nbytes, uint64_t *distance) {
    uint64_t count = 0;
    for (size_t i = 0; i < nbytes; i++, nearest += step)
        if (*nearest != POISON && !count++) *distance = i;
    return count;
}

static double half_value(const uint8_t *at) {
    uint16_t bits;
    float size;
    memcpy(&bits, at, sizeof bits);
    const uint32_t shifted = (bits & 0x7fffu) << 13; /* a float whose exponent is too small by 112 */
    memcpy(&size, &shifted, sizeof size);
    size *= 0x1p112f;
    if ((bits & 0x7c00u) == 0x7c00u) size = bits & 0x3ffu ? NAN : INFINITY;
    return bits & 0x8000u ? -size : size;
}

static double bfloat_value(const uint8_t *at) {
    uint16_t bits;
    float number;
    memcpy(&bits, at, sizeof bits);
    const uint32_t whole = (uint32_t)bits << 16; /* it is the upper half of a float */
    memcpy(&number, &whole, sizeof number);
    return number;
}

static double float_value(const uint8_t *at) {
    float number;
    memcpy(&number, at, sizeof number);
    return number;
}

typedef double (*value_at)(const uint8_t *at);

/* Returns what reads a number of a type of floats; NULL for other types. */
static value_at how_to_read(const char *dtype) {
    if (!strcmp(dtype, "float32")) return float_value;
    if (!strcmp(dtype, "float16")) return half_value;
    return strcmp(dtype, "bfloat16") ? NULL : bfloat_value;
}

typedef struct bounds {
    double limit, ordinary, relative, absolute;
} bounds;

/* Whether a float is wrong, and its error. Some drivers store the bits of poison for each NaN in half. */
static bool is_wrong(double got, double want, bool poisoned, size_t nbytes, const bounds *bounds, double *error) {
    const double size = isfinite(want) ? fabs(want) : 0.0;
    *error = fabs(got - want);
    if (isnan(want) && isnan(got)) return poisoned && nbytes > 2;
    const double allowed = size <= bounds->ordinary ? bounds->limit : bounds->absolute + bounds->relative * size;
    return !(*error <= allowed || got == want);
}

static void compare(const uint8_t *got, const slice *want, size_t nbytes, value_at value, const bounds *bounds,
                    found *found, double *maximum) {
    static const uint8_t poison[] = {POISON, POISON, POISON, POISON};
    bool known = false;
    for (size_t at = 0; at < want->nbytes; at += nbytes) {
        bool wrong;
        double error = NAN;
        if (value) {
            const bool poisoned = !memcmp(got + at, poison, nbytes);
            wrong = is_wrong(value(got + at), value(want->data + at), poisoned, nbytes, bounds, &error);
            found->poisoned += poisoned;
        } else wrong = memcmp(got + at, want->data + at, nbytes) != 0;
        if (isfinite(error) && (!known || error > *maximum)) known = true, *maximum = error;
        if (wrong && !found->wrong++) found->first = at / nbytes;
    }
    if (!found->wrong) *found = (struct found){.wrong = 0};
    else found->found = (slice){got + found->first * nbytes, nbytes};
    if (found->wrong && known) found->maximum = (slice){(const uint8_t *)maximum, sizeof *maximum};
}

static gputune_code check_expected(session *session, const check_message *request, found *found, double *maxima,
                                   const uint8_t *content, gputune_error *error) {
    for (size_t i = 0; i < request->expected_count; content += request->zones[i++].nbytes) {
        const expected *const expected = &request->expected[i];
        const guarded *const zone = &request->zones[i];
        size_t nbytes = 0;
        object *kept;
        bounds bounds;
        TRY(object_of(session, expected->kept, KEPT, &kept, error));
        for (size_t type = 0; DTYPES[type]; type++)
            if (DTYPES[type] == expected->dtype) nbytes = DTYPE_BYTES[type];
        if (expected->bounds.nbytes != sizeof bounds || kept->kept.nbytes != zone->inside || zone->inside % nbytes)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "%llu bytes are compared with %zu bytes of %s",
                        (unsigned long long)zone->inside, kept->kept.nbytes, expected->dtype);
        memcpy(&bounds, expected->bounds.data, sizeof bounds);
        compare(content + zone->guard_bytes, &kept->kept, nbytes, how_to_read(expected->dtype), &bounds, &found[i],
                &maxima[i]);
    }
    return GPUTUNE_OK;
}

/* Copies all zones to the host, where they lie one behind the other. */
static gputune_code read_zones(session *session, const check_message *request, gputune_error *error) {
    storage *buffer;
    size_t total = 0;
    for (size_t i = 0; i < request->zones_count; i++) {
        const guarded *const zone = &request->zones[i];
        TRY(memory_of(session, &(span){zone->buffer, zone->offset, zone->nbytes}, &buffer, error));
        if (zone->guard_bytes > zone->nbytes || zone->inside > zone->nbytes - zone->guard_bytes)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "guards lie outside of %llu bytes",
                        (unsigned long long)zone->nbytes);
        if (zone->nbytes > PTRDIFF_MAX - total) return NO_MEMORY;
        total += (size_t)zone->nbytes;
    }
    TRY(take_contents(session, total, error));
    gputune_code code = GPUTUNE_OK;
    for (size_t i = 0, at = 0; i < request->zones_count && !code; at += (size_t)request->zones[i++].nbytes) {
        const guarded *const zone = &request->zones[i];
        code = begin_read(session, &(span){zone->buffer, zone->offset, zone->nbytes}, session->contents + at, error);
    }
    if (!code) return finish(&session->device->stream, error);
    session->device->cl.Finish(session->device->stream.queue); /* so that nothing is still copied there */
    return code;
}

gputune_code check_zones(session *session, const void *asked, void *reply, gputune_error *error) {
    const check_message *const request = asked;
    checked_message *const checked = reply;
    gputune_code code = GPUTUNE_OK;
    seen *const seen = reply_rows(session, request->zones_count, sizeof *seen, &code, error);
    found *const found = reply_rows(session, request->expected_count, sizeof *found, &code, error);
    double *const maxima = reply_rows(session, request->expected_count, sizeof *maxima, &code, error);
    if (!code && request->expected_count > request->zones_count)
        code = fail(error, GPUTUNE_INVALID_ARGUMENT, "more is expected than there are zones");
    if (!code) code = read_zones(session, request, error);
    const uint8_t *zone_at = session->contents;
    for (size_t i = 0; i < request->zones_count && !code; zone_at += request->zones[i++].nbytes) {
        const guarded *const zone = &request->zones[i];
        const uint8_t *const inside = zone_at + zone->guard_bytes, *const behind = inside + zone->inside;
        seen[i].crc32 = zone->summed ? crc32(inside, (size_t)zone->inside) : 0;
        seen[i].before = changed(inside - 1, -1, (size_t)zone->guard_bytes, &seen[i].before_distance);
        seen[i].after = changed(behind, 1, (size_t)(zone_at + zone->nbytes - behind), &seen[i].after_distance);
    }
    if (!code) code = check_expected(session, request, found, maxima, session->contents, error);
    checked->seen = seen, checked->seen_count = request->zones_count;
    checked->found = found, checked->found_count = request->expected_count;
    return code;
}
