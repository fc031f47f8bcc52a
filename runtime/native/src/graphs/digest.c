/* By which a log and a schematic of the same launches know each other: as digest_of of runtime/profiling/records.py. */
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As JSON of ASCII alone. */
static void put_json(FILE *out, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    putc('"', out);
    for (; *at; at++) {
        static const char SHORT[] = "\bb\tt\nn\ff\rr\"\"\\\\";
        const char *known = strchr(SHORT, *at);
        uint32_t code = *at;
        for (int more = code >= 0xf0 ? 3 : code >= 0xe0 ? 2 : code >= 0xc0 ? 1 : 0, i = more; i && at[1]; i--) {
            code = i == more ? code & (0x3fu >> more) : code;
            code = code << 6 | (*++at & 0x3fu);
        }
        if (known && (known - SHORT) % 2 == 0) fprintf(out, "\\%c", known[1]);
        else if (code > 0xffff) fprintf(out, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 | (code & 0x3ff));
        else fprintf(out, code >= ' ' && code <= '~' ? "%c" : "\\u%04x", code);
    }
    putc('"', out);
}

gputune_code digest_of(const graph_record *record, char hex[65], gputune_error *error) {
    char *text = NULL;
    size_t length = 0;
    uint8_t digest[32];
    FILE *out = open_memstream(&text, &length);
    if (!out) return NO_MEMORY;
    for (size_t i = 0; i < record->info.launch_count; i++) {
        const launch *launch = &record->launches[i];
        const char *const names[] = {launch->operation, launch->task, launch->entry};
        for (size_t j = 0; j < 3; j++) {
            fputs(j ? "," : i ? ",[" : "[[", out);
            put_json(out, names[j]);
        }
        for (size_t j = 0; j < 2 * launch->dimensions; j++) {
            const size_t place = j % launch->dimensions;
            fprintf(out, "%s%zu", place ? "," : j ? "],[" : ",[",
                    j < launch->dimensions ? launch->global_size[place] : launch->local_size[place]);
        }
        fputs("]]", out);
    }
    fputs(record->info.launch_count ? "]" : "[]", out);
    if (fclose(out)) return free(text), NO_MEMORY;
    sha256((const uint8_t *)text, length, digest);
    free(text);
    for (size_t i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return GPUTUNE_OK;
}
