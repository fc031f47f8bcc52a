#include "reading.h"
void read_package(reader *reader, gputune_file *file) {
    (void)file;
    malformed(reader, "packages are not read yet");
}
void read_packed(reader *reader, const gputune_file *file, part *part) {
    (void)file;
    (void)part;
    malformed(reader, "packages are not read yet");
}
