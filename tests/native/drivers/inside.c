/* What the agent keeps to itself: names of a folder, and how errors are told. */
#include "files.c"
#include "session.c"

size_t names_of(const char *path, uint8_t *into, size_t room) {
    DIR *const folder = opendir(path);
    return folder ? read_names(folder, into, room) : 0;
}

const char *told_as(int code) { return status_of((gputune_code)code); }

/* Cuts a text that has no room. */
static void print(char *text, size_t room, const char *format, ...) {
    va_list values;
    va_start(values, format);
    write_text(text, room, format, values);
    va_end(values);
}
void printed(char *text, size_t room, const char *what) { print(text, room, "%s", what); }
