/* Lines for people, each kept once. */
#include "power.h"

#include <stdio.h>
#include <string.h>

void note(notes *notes, const char *format, ...) {
    va_list values;
    va_start(values, format);
    mutex_lock(&notes->lock);
    size_t same = 0;
    write_text(notes->lines[notes->count], NOTE_BYTES, format, values);
    while (strcmp(notes->lines[same], notes->lines[notes->count])) same++;
    notes->count += same == notes->count && same < MOST_NOTES;
    mutex_unlock(&notes->lock);
    va_end(values);
}

const char *noted(notes *notes, size_t number) {
    mutex_lock(&notes->lock);
    const char *line = number < notes->count ? notes->lines[number] : NULL;
    mutex_unlock(&notes->lock);
    return line;
}
