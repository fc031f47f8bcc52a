/* Raw DEFLATE (RFC 1951), of which all bytes are there, and so is room for all that it becomes. */
#include "reading.h"

#include <string.h>

enum {
    LONGEST_CODE = 15, QUICK_BITS = 10, /* bits of a code, and of one that is looked up at once */
    SYMBOLS = 288, END = 256, LENGTH_SYMBOLS = 29, DISTANCE_SYMBOLS = 30, LENGTH_CODES = 19
};

typedef struct codes {
    uint16_t counts[LONGEST_CODE + 1];  /* by the length of codes */
    uint16_t symbols[SYMBOLS];          /* in the order of their codes */
    uint16_t quick[1 << QUICK_BITS];    /* by the next bits: symbol << 4 | length; 0: the code is longer, or none */
} codes;

typedef struct stream {
    const uint8_t *from, *from_end;
    uint8_t *begin, *to, *to_end;
    uint64_t bits; /* the next ones, the first of them lowest */
    unsigned count;
} stream;

static void fill(stream *stream) {
    while (stream->count <= 56 && stream->from < stream->from_end) {
        stream->bits |= (uint64_t)*stream->from++ << stream->count;
        stream->count += 8;
    }
}

/* Takes bits that were filled in; whether there are so many. */
static bool take(stream *stream, unsigned count, unsigned *bits) {
    *bits = (unsigned)(stream->bits & ((1u << count) - 1));
    if (count > stream->count) return false;
    stream->bits >>= count, stream->count -= count;
    return true;
}

/* Makes the codes of symbols from their lengths; false where lengths contradict each other. A single code may be left
 * incomplete, as of the only distance; it is one bit long. */
static bool make_codes(codes *made, const uint8_t *lengths, size_t count, bool single) {
    uint16_t places[LONGEST_CODE + 2] = {0};
    int left = 1;
    memset(made, 0, sizeof *made);
    for (size_t i = 0; i < count; i++) made->counts[lengths[i]]++;
    const size_t used = count - made->counts[0];
    for (unsigned length = 1; length <= LONGEST_CODE; length++) {
        left = 2 * left - made->counts[length];
        if (left < 0) return false;
        places[length + 1] = (uint16_t)(places[length] + made->counts[length]);
    }
    if (left && used && !(single && used == 1 && made->counts[1])) return false;
    for (size_t i = 0; i < count; i++)
        if (lengths[i]) made->symbols[places[lengths[i]]++] = (uint16_t)i;
    unsigned code = 0, place = 0;
    for (unsigned length = 1; length <= QUICK_BITS; length++, code <<= 1)
        for (unsigned i = 0; i < made->counts[length]; i++, code++, place++) {
            unsigned reversed = 0;
            for (unsigned bit = 0; bit < length; bit++) reversed |= (code >> bit & 1) << (length - 1 - bit);
            for (; reversed < 1 << QUICK_BITS; reversed += 1u << length)
                made->quick[reversed] = (uint16_t)((unsigned)made->symbols[place] << 4 | length);
        }
    return true;
}

/* Takes a symbol; false where the next bits are none. */
static bool take_symbol(stream *stream, const codes *codes, unsigned *symbol) {
    const unsigned quick = codes->quick[stream->bits & ((1 << QUICK_BITS) - 1)];
    unsigned length = quick & 15, first = 0, code = 0, place = 0, bits;
    *symbol = quick >> 4;
    while (!quick) {
        if (++length > LONGEST_CODE) return false;
        code = code << 1 | (unsigned)(stream->bits >> (length - 1) & 1);
        first <<= 1;
        if (code - first < codes->counts[length]) {
            *symbol = codes->symbols[place + code - first];
            break;
        }
        first += codes->counts[length], place += codes->counts[length];
    }
    return take(stream, length, &bits);
}

static void copy(stream *stream, size_t distance, size_t length) {
    const uint8_t *from = stream->to - distance;
    if (distance >= length) memcpy(stream->to, from, length);
    else for (size_t i = 0; i < length; i++) stream->to[i] = from[i];
    stream->to += length;
}

/* Takes a distance and repeats what lies so far behind. symbol: of the length. */
static bool repeat(stream *stream, unsigned symbol, const codes *distances) {
    static const uint16_t LENGTHS[LENGTH_SYMBOLS] = {3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43,
        51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t MORE[LENGTH_SYMBOLS] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4,
        5, 5, 5, 5, 0};
    unsigned more, distance;
    if (symbol >= LENGTH_SYMBOLS || !take(stream, MORE[symbol], &more)) return false;
    const size_t length = LENGTHS[symbol] + more;
    if (!take_symbol(stream, distances, &distance) || distance >= DISTANCE_SYMBOLS) return false;
    const unsigned bits = distance < 2 ? 0 : distance / 2 - 1;
    if (!take(stream, bits, &more)) return false;
    const size_t behind = 1 + (distance < 2 ? distance : (2u + distance % 2) << bits) + more;
    if (behind > (size_t)(stream->to - stream->begin) || length > (size_t)(stream->to_end - stream->to)) return false;
    copy(stream, behind, length);
    return true;
}

static bool inflate_symbols(stream *stream, const codes *literals, const codes *distances) {
    for (unsigned symbol;;) {
        fill(stream); /* a length and a distance take 48 bits at most */
        if (!take_symbol(stream, literals, &symbol)) return false;
        if (symbol == END) return true;
        if (symbol > END) {
            if (!repeat(stream, symbol - END - 1, distances)) return false;
        } else {
            if (stream->to == stream->to_end) return false;
            *stream->to++ = (uint8_t)symbol;
        }
    }
}

static bool inflate_fixed(stream *stream) {
    uint8_t lengths[SYMBOLS];
    codes literals, distances;
    for (size_t i = 0; i < SYMBOLS; i++) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    make_codes(&literals, lengths, SYMBOLS, false);
    memset(lengths, 5, 32);
    make_codes(&distances, lengths, 32, false);
    return inflate_symbols(stream, &literals, &distances);
}

/* Reads the lengths of codes, which are themselves written as codes. */
static bool take_lengths(stream *stream, const codes *codes, uint8_t *lengths, size_t count) {
    for (size_t at = 0; at < count;) {
        unsigned symbol, more;
        uint8_t again = 0;
        fill(stream);
        if (!take_symbol(stream, codes, &symbol)) return false;
        if (symbol < 16) {
            lengths[at++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16 && !at) return false;
        if (symbol == 16) again = lengths[at - 1];
        if (!take(stream, symbol == 16 ? 2 : symbol == 17 ? 3 : 7, &more)) return false;
        more += symbol == 18 ? 11 : 3;
        if (more > count - at) return false;
        memset(lengths + at, again, more);
        at += more;
    }
    return true;
}

static bool inflate_dynamic(stream *stream) {
    static const uint8_t ORDER[LENGTH_CODES] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[286 + DISTANCE_SYMBOLS] = {0};
    unsigned literal_count, distance_count, count, length;
    codes literals, distances;
    if (!take(stream, 5, &literal_count) || !take(stream, 5, &distance_count) || !take(stream, 4, &count)) return false;
    literal_count += 257, distance_count += 1, count += 4;
    if (literal_count > 286 || distance_count > DISTANCE_SYMBOLS) return false;
    for (unsigned i = 0; i < count; i++) {
        fill(stream);
        if (!take(stream, 3, &length)) return false;
        lengths[ORDER[i]] = (uint8_t)length;
    }
    if (!make_codes(&literals, lengths, LENGTH_CODES, false)) return false;
    memset(lengths, 0, sizeof lengths);
    if (!take_lengths(stream, &literals, lengths, literal_count + distance_count)) return false;
    return make_codes(&literals, lengths, literal_count, true) &&
           make_codes(&distances, lengths + literal_count, distance_count, true) &&
           inflate_symbols(stream, &literals, &distances);
}

static bool inflate_stored(stream *stream) {
    unsigned length, inverse, dropped;
    if (!take(stream, stream->count % 8, &dropped)) return false;
    fill(stream);
    if (!take(stream, 16, &length) || !take(stream, 16, &inverse) || length != (inverse ^ 0xffff)) return false;
    stream->from -= stream->count / 8;
    stream->bits = stream->count = 0;
    if (length > (size_t)(stream->from_end - stream->from) || length > (size_t)(stream->to_end - stream->to))
        return false;
    memcpy(stream->to, stream->from, length);
    stream->from += length, stream->to += length;
    return true;
}

bool inflate_whole(slice from, uint8_t *to, size_t nbytes) {
    stream stream = {from.data, from.data + from.nbytes, to, to, to + nbytes, 0, 0};
    for (unsigned last = 0, kind; !last;) {
        fill(&stream);
        if (!take(&stream, 1, &last) || !take(&stream, 2, &kind)) return false;
        if (kind == 3 || !(kind == 0   ? inflate_stored(&stream)
                           : kind == 1 ? inflate_fixed(&stream)
                                       : inflate_dynamic(&stream)))
            return false;
    }
    return stream.to == stream.to_end && stream.from - stream.count / 8 == stream.from_end;
}
