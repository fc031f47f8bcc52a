/* The token, and the keys that two sides with the same token have for a connection, as authentication.py has them. */
#ifndef GPUTUNE_KEYS_H
#define GPUTUNE_KEYS_H

#include "files/reading.h"

enum { LEAST_TOKEN = 16, MOST_TOKEN = 4096, TOKEN_BYTES = 4 * MOST_TOKEN + 1 }; /* characters, and bytes of UTF-8 */
enum { NONCE_DIGITS = 64, SALT_DIGITS = 32, KEY_BYTES = 32 };

typedef struct token {
    size_t nbytes;
    uint8_t bytes[TOKEN_BYTES];
} token;

/* Read a token without white space around it: from a file that only its owner can use, from the first line that a
 * descriptor such as the standard input has (nothing after it is taken), or from an environment variable, which is
 * removed so that no child sees it. */
gputune_code token_of_file(token *token, const char *path, gputune_error *error);
gputune_code token_of_line(token *token, int descriptor, gputune_error *error);
gputune_code token_of_variable(token *token, const char *name, gputune_error *error);

/* Random hexadecimal digits, at most NONCE_DIGITS and an even number, and a 0: a nonce or a salt. */
gputune_code fresh_digits(char *text, size_t digits, gputune_error *error);
/* Whether a text from outside has the form of such. */
bool are_digits(const char *text, size_t digits);

/* The texts of a hello in the order of authentication.py; protocol: as a decimal number. */
typedef struct hello_texts {
    const char *protocol, *software, *nonce, *authentication, *salt;
} hello_texts;

/* The token as a key, at such a cost that guesses are slow: 16 MiB meanwhile, and a tenth of a second. */
gputune_code stretch_token(const token *token, const char *salt, uint8_t stretched[KEY_BYTES], gputune_error *error);
/* The key for the MACs of the frames that a side, "client" or "server", sends after these hellos. */
void frame_key(const uint8_t stretched[KEY_BYTES], const char *side, const hello_texts *client,
               const hello_texts *server, uint8_t key[KEY_BYTES]);

#endif
