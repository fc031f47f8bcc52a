/* Files by which the device's system says its clocks, temperatures and load, and no others: who may run kernels need
 * not see what else this user may read. */
#include "session.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 1 << 16, ALL_BYTES = 1 << 22 };

static size_t read_names(DIR *folder, uint8_t *into, size_t room) {
    size_t nbytes = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const size_t length = strlen(entry->d_name);
        if (length + 1 > room - nbytes) break;
        memcpy(into + nbytes, entry->d_name, length);
        into[nbytes + length] = '\n';
        nbytes += length + 1;
    }
    closedir(folder);
    return nbytes;
}

/* The path without links of a file that says such a thing, or NULL. Kernels that debug show far more below /sys. */
static const char *path_about_the_system(const char *path, char real[PATH_MAX]) {
    static const char *const OTHERS[] = {"/sys/kernel/debug", "/sys/kernel/tracing"};
    static const char *const KNOWN[] = {"/proc/cpuinfo", "/proc/loadavg",   "/proc/stat",
                                        "/proc/uptime",  "/proc/self/stat", "/proc/self/status"};
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (!strcmp(path, KNOWN[i])) return path;
    if (!realpath(path, real) || strncmp(real, "/sys/", 5)) return NULL;
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        if (lies_in(real, OTHERS[i])) return NULL;
    return real;
}

static size_t read_path(const char *asked, uint8_t *into, size_t room) {
    char real[PATH_MAX];
    const char *const path = path_about_the_system(asked, real);
    if (!path) return 0;
    DIR *const folder = opendir(path);
    if (folder) return read_names(folder, into, room);
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t nbytes = 0;
    for (ssize_t got; file >= 0 && (got = read(file, into + nbytes, room - nbytes)) > 0;) nbytes += (size_t)got;
    if (file >= 0) close(file);
    return nbytes;
}

gputune_code read_files(session *session, const void *asked, void *reply, gputune_error *error) {
    const read_files_message *const request = asked;
    contents_message *const contents = reply;
    const uint64_t begun_ns = now_ns();
    gputune_code code = take_contents(session, ALL_BYTES, error);
    slice *const data = reply_rows(session, request->paths_count, sizeof *data, &code, error);
    for (size_t i = 0, at = 0; i < request->paths_count && !code; at += data[i++].nbytes) {
        const size_t room = ALL_BYTES - at < FILE_BYTES ? ALL_BYTES - at : FILE_BYTES;
        const bool late = now_ns() - begun_ns > request->within_ns;
        uint8_t *const into = session->contents + at;
        data[i] = (slice){into, late ? 0 : read_path(request->paths[i], into, room)};
    }
    contents->data = data, contents->data_count = request->paths_count;
    return code;
}
