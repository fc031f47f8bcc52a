/* Tokens, nonces and keys. */
#include "keys.h"

#include "scrypt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the token ---------------------------------------------------------------------------------------------------- */

/* White space as Python's str.strip knows it. */
static bool is_space(uint32_t code) {
    static const uint32_t SPACES[] = {0x20, 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
    for (size_t at = 0; at < sizeof SPACES / sizeof *SPACES; at++)
        if (code == SPACES[at]) return true;
    return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x1f) || (code >= 0x2000 && code <= 0x200a);
}

static gputune_code strip_token(token *token, const char *where, gputune_error *error) {
    if (!is_utf8((slice){token->bytes, token->nbytes}))
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s is not UTF-8 text", where);
    size_t begin = 0, end = 0, characters = 0, counted = 0;
    for (size_t at = 0, next; at < token->nbytes; at = next) {
        const uint8_t first = token->bytes[at];
        uint32_t code = first < 0xc0 ? first : first & (first >= 0xf0 ? 0x07u : first >= 0xe0 ? 0x0fu : 0x1fu);
        for (next = at + 1; next < token->nbytes && (token->bytes[next] & 0xc0) == 0x80; next++)
            code = code << 6 | (token->bytes[next] & 0x3f);
        if (end == 0 && is_space(code)) begin = next;
        else counted++;
        if (!is_space(code)) end = next, characters = counted;
    }
    if (characters < LEAST_TOKEN || characters > MOST_TOKEN)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s has %s%zu characters; a token has %d to %d, all of them "
                    "random: make one with python3 -c 'import secrets; print(secrets.token_hex(32))'", where,
                    characters > MOST_TOKEN ? "more than " : "", characters > MOST_TOKEN ? MOST_TOKEN : characters,
                    LEAST_TOKEN, MOST_TOKEN);
    token->nbytes = end - begin;
    memmove(token->bytes, token->bytes + begin, token->nbytes);
    return GPUTUNE_OK;
}

/* Reads so many bytes, or to the end, or to that of a line; false with errno if it cannot. */
static bool read_bytes(int descriptor, uint8_t *bytes, size_t most, bool line, size_t *nbytes) {
    for (*nbytes = 0; *nbytes < most && !(line && *nbytes && bytes[*nbytes - 1] == '\n');) {
        const ssize_t got = read(descriptor, bytes + *nbytes, line ? 1 : most - *nbytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got == 0;
        *nbytes += (size_t)got;
    }
    return true;
}

gputune_code token_of_file(token *token, const char *path, gputune_error *error) {
    char where[GPUTUNE_MESSAGE_BYTES / 2];
    struct stat status;
    snprintf(where, sizeof where, "the token file %s", path);
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    /* asked of the open file, so that it cannot be exchanged between the question and the reading */
    const bool known = descriptor >= 0 && !fstat(descriptor, &status), shared = known && status.st_mode & 077;
    gputune_code code = GPUTUNE_OK;
    if (shared)
        code = fail(error, GPUTUNE_UNTRUSTED_FILE, "%s can be used by others (mode %03o); run chmod 600 on it", where,
                    (unsigned)status.st_mode & 07777);
    else if (!known || !read_bytes(descriptor, token->bytes, TOKEN_BYTES, false, &token->nbytes))
        code = fail(error, GPUTUNE_IO_ERROR, "%s cannot be read: %s", where, strerror(errno));
    if (descriptor >= 0) close(descriptor);
    return code ? code : strip_token(token, where, error);
}

gputune_code token_of_line(token *token, int descriptor, gputune_error *error) {
    if (!read_bytes(descriptor, token->bytes, TOKEN_BYTES, true, &token->nbytes))
        return fail(error, GPUTUNE_IO_ERROR, "the token cannot be read: %s", strerror(errno));
    return strip_token(token, "the token", error);
}

gputune_code token_of_variable(token *token, const char *name, gputune_error *error) {
    const char *text = getenv(name);
    const size_t nbytes = text == NULL ? 0 : strlen(text);
    token->nbytes = nbytes < TOKEN_BYTES ? nbytes : TOKEN_BYTES;
    if (nbytes) memcpy(token->bytes, text, token->nbytes);
    unsetenv(name);
    return strip_token(token, name, error);
}

/* --- nonces and salts --------------------------------------------------------------------------------------------- */

/* /dev/urandom is on every system; getrandom, which is the same source, is too new for some. */
gputune_code fresh_digits(char *text, size_t digits, gputune_error *error) {
    uint8_t bytes[NONCE_DIGITS / 2];
    size_t have = 0;
    const int descriptor = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    const bool good = descriptor >= 0 && read_bytes(descriptor, bytes, digits / 2, false, &have) && have == digits / 2;
    if (descriptor >= 0) close(descriptor);
    if (!good) return fail(error, GPUTUNE_IO_ERROR, "/dev/urandom cannot be read, so there are no random numbers");
    for (size_t at = 0; at < digits; at++) text[at] = "0123456789abcdef"[bytes[at / 2] >> 4 * (at % 2) & 15];
    text[digits] = 0;
    return GPUTUNE_OK;
}

bool are_digits(const char *text, size_t digits) {
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

gputune_code stretch_token(const token *token, const char *salt, uint8_t stretched[KEY_BYTES], gputune_error *error) {
    return scrypt(token->bytes, token->nbytes, (const uint8_t *)salt, strlen(salt), stretched) ? GPUTUNE_OK : NO_MEMORY;
}

/* A length before each text: no two sets look alike. */
static void add_text(hmac *mac, const char *text) {
    const size_t nbytes = strlen(text);
    uint8_t length[4];
    for (size_t at = 0; at < sizeof length; at++) length[at] = (uint8_t)(nbytes >> 8 * at);
    hmac_add(mac, length, sizeof length);
    hmac_add(mac, text, nbytes);
}

void frame_key(const uint8_t stretched[KEY_BYTES], const char *side, const hello_texts *client,
               const hello_texts *server, uint8_t key[KEY_BYTES]) {
    hmac mac;
    hmac_begin(&mac, stretched, KEY_BYTES);
    add_text(&mac, "gputune frames 1");
    add_text(&mac, side);
    for (int place = 0; place < 2; place++) {
        const hello_texts *hello = place ? server : client;
        const char *const texts[] = {hello->protocol, hello->software, hello->nonce, hello->authentication,
                                     hello->salt};
        for (size_t at = 0; at < sizeof texts / sizeof *texts; at++) add_text(&mac, texts[at]);
    }
    hmac_add(&mac, "\1", 1); /* HKDF-Expand: the number of the block */
    hmac_end(&mac, key);
}
