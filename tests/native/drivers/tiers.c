/* Says the tier of each device that it is told: lines of NAME, VENDOR and VERSION, with tabs between, become lines of
 * model, family and vendor. */
#include "devices/tier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1 << 16 };

/* The text up to a tab or the end, which becomes a 0; the next text begins behind it. */
static const char *next_text(char **rest) {
    char *text = *rest, *end = text + strcspn(text, "\t\n");
    *rest = end + (*end != 0);
    *end = 0;
    return text;
}

int main(void) {
    char *line = malloc(LINE_BYTES);
    if (!line) return 4;
    while (fgets(line, LINE_BYTES, stdin)) {
        char *rest = line;
        identity device = {.name = next_text(&rest)};
        device.vendor = next_text(&rest);
        device.device_version = next_text(&rest);
        const tier found = tier_of(&device);
        printf("%s\t%s\t%s\n", found.model, found.family, found.vendor);
    }
    free(line);
    return 0;
}
