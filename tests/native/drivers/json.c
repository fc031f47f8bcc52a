/* What digests are made of. */
#include "graphs/digest.c"

/* The JSON of a text, in memory that is to be freed. */
char *json_of(const char *text) {
    char *json = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&json, &length);
    if (out) {
        put_json(out, text);
        fclose(out);
    }
    return json;
}
